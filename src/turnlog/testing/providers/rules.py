"""The names of the provider rules that the validators of this package judge by."""

from __future__ import annotations

from enum import StrEnum


class Rule(StrEnum):
    """One rule a request must keep; its value is the name that a violation carries."""

    # JSON
    NOT_JSON = "not-json"
    """Every value is null, a boolean, a string, a finite number, a list or a dict."""
    LONE_SURROGATE = "lone-surrogate"
    """No string holds a surrogate: such a string has no UTF-8 form."""

    # the body
    UNKNOWN_KEY = "unknown-key"
    """An object holds only the keys that the provider documents."""
    MODEL = "model"
    """`model` is a non-empty string."""
    MAX_TOKENS = "max-tokens"
    """A limit of output tokens is a positive integer."""
    STREAM_OPTIONS = "stream-options"
    """`stream_options` is an object and comes only with `stream: true`."""
    RESPONSE_FORMAT = "response-format"
    """`response_format` is text, json_object, or json_schema with a name and a schema."""
    SYSTEM = "system"
    """`system` is a string or a list of text blocks, none of it empty."""
    THINKING_CONFIG = "thinking-config"
    """`thinking` is of a known type; a budget is at least 1,024 and below `max_tokens`."""
    CACHE_CONTROL = "cache-control"
    """A cache marker is `ephemeral`, and there are at most four of them."""

    # tools
    TOOLS_SHAPE = "tools-shape"
    """`tools`, when present, is a non-empty list of well-formed definitions."""
    TOOL_NAME = "tool-name"
    """A tool's name is 1 to 64 letters, digits, underscores or hyphens."""
    TOOL_NAME_REPEATED = "tool-name-repeated"
    """No two tools share a name."""
    TOOL_SCHEMA = "tool-schema"
    """A tool's parameters are a JSON schema of type object, with no union at its top."""
    TOOL_CHOICE = "tool-choice"
    """`tool_choice` is of a known form, comes with `tools` and names one of them."""

    # messages
    MESSAGES_EMPTY = "messages-empty"
    """`messages` is a non-empty list."""
    MESSAGE_SHAPE = "message-shape"
    """A message is an object with the fields of its role, each of the right type."""
    ROLE = "role"
    """A message's role is one that the provider knows."""
    FIRST_NOT_USER = "first-not-user"
    """The first message is the user's."""
    ROLES_ALTERNATE = "roles-alternate"
    """User and assistant take turns."""

    # content
    CONTENT_EMPTY = "content-empty"
    """A message says something: its content is not null, not an empty list."""
    TEXT_EMPTY = "text-empty"
    """A text is not empty and not only whitespace."""
    BLOCK_SHAPE = "block-shape"
    """A content block has the fields of its type, each of the right type."""
    BLOCK_TYPE = "block-type"
    """A content block's type is allowed in a message of this role."""
    FINAL_WHITESPACE = "final-whitespace"
    """A final assistant message does not end in whitespace."""

    # reasoning
    REASONING_EMPTY = "reasoning-empty"
    """An empty reasoning block carries the provider's replay data."""
    REASONING_SHAPE = "reasoning-shape"
    """`reasoning_content` is a string."""
    REASONING_MISSING = "reasoning-missing"
    """In thinking mode an assistant message with tool calls has `reasoning_content`."""
    THINKING_SIGNATURE = "thinking-signature"
    """A thinking block carries its signature."""
    REDACTED_DATA = "redacted-data"
    """A redacted thinking block carries its data."""
    THINKING_FIRST = "thinking-first"
    """With thinking enabled the assistant message of an open tool loop starts with it."""
    THINKING_LAST = "thinking-last"
    """An assistant message does not end in a thinking block."""

    # calls and results
    CALL_OUTSIDE_ASSISTANT = "call-outside-assistant"
    """Only assistant messages call tools."""
    CALLS_EMPTY = "calls-empty"
    """`tool_calls`, when present, holds 1 to 128 calls."""
    CALL_SHAPE = "call-shape"
    """A tool call has an id, a name and arguments, each of the right type."""
    CALL_ID = "call-id"
    """A call's id keeps the provider's limits of length and alphabet."""
    CALL_ID_REPEATED = "call-id-repeated"
    """Call ids are unique: within a message (OpenAI), within the request (Anthropic)."""
    CALL_WITHOUT_RESULT = "call-without-result"
    """Each call has a result."""
    RESULT_WITHOUT_CALL = "result-without-call"
    """Each result answers an earlier call."""
    RESULT_REPEATED = "result-repeated"
    """No call has two results."""
    RESULT_NOT_ADJACENT = "result-not-adjacent"
    """Results follow their call's message at once."""
    RESULT_OUT_OF_ORDER = "result-out-of-order"
    """Results come in the order of their calls."""
    RESULT_CALL_ID_MISSING = "result-call-id-missing"
    """A result names its call."""
    RESULT_AFTER_CONTENT = "result-after-content"
    """In a user message the results come before anything else."""


PAIRING_RULES = frozenset(
    {
        Rule.CALL_WITHOUT_RESULT,
        Rule.RESULT_WITHOUT_CALL,
        Rule.RESULT_REPEATED,
        Rule.RESULT_NOT_ADJACENT,
        Rule.RESULT_CALL_ID_MISSING,
    }
)
"""What every provider asks of calls and results."""
