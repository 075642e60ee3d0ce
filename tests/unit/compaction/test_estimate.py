"""How large text, messages and headers are taken to be."""

from __future__ import annotations

from base64 import b64encode
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.compaction.samples import SAMPLES
from turnlog.compaction.characters import COSTS, NEWLINE, UNIT, kind_of, text_tokens
from turnlog.compaction.estimate import DEFAULT, Size, header_size, message_size
from turnlog.compaction.exact import ExactEstimator
from turnlog.compaction.images import LEAST, MOST
from turnlog.content import (
    Image,
    Reasoning,
    Text,
    ToolCall,
    assistant_message,
    tool_message,
    user_message,
)
from turnlog.events import Header, ModelConfig, ToolSchema
from turnlog.records import Opaque

CONFIG = ModelConfig("scripted", "parrot")


@pytest.mark.parametrize("kind", SAMPLES)
def test_text_is_estimated_within_a_quarter(kind: str) -> None:
    """Each kind of text is estimated within a quarter of what a current vocabulary makes of it."""
    text = SAMPLES[kind]
    exact = ExactEstimator().text(text)
    assert 0.75 * exact <= DEFAULT.text(text) <= 1.25 * exact


def test_nothing_costs_nothing() -> None:
    """No text is no token, and any text is at least one."""
    assert text_tokens("") == 0
    assert text_tokens("a") == text_tokens(" ") == 1


@given(st.text() | st.sampled_from(list(SAMPLES.values())))
def test_a_text_costs_what_its_bytes_cost(text: str) -> None:
    """The estimate is the sum, byte by byte, of what the table says of neighbours."""
    kinds = [NEWLINE, *map(kind_of, text.encode("utf-8", "surrogatepass"))]
    cost = sum(COSTS[before][kind] for before, kind in pairwise(kinds))
    assert text_tokens(text) == min(ceil(cost / UNIT), len(kinds) - 1)


def test_lone_surrogates_are_counted() -> None:
    """Half of a surrogate pair has a size, in the estimate and in the exact count."""
    assert text_tokens("\ud83d") > 0
    assert ExactEstimator().text("\ud83d") > 0


def test_a_long_run_is_counted_exactly_in_parts() -> None:
    """A run of a hundred thousand characters without a gap does not take the square of that."""
    assert ExactEstimator().text("ab" * 50_000) > 10_000


def test_an_unknown_vocabulary_is_refused() -> None:
    """A vocabulary that nobody carries is refused when the estimator is made."""
    with pytest.raises(ValueError, match="unknown"):
        ExactEstimator("k1_base")


def test_every_block_counts() -> None:
    """Text, reasoning, calls, images and unknown blocks each add to the size of a message."""
    blocks = [
        Text("the answer is in the log"),
        Reasoning("let me think about it"),
        ToolCall("c1", "read", '{"path": "src/log.py"}'),
        Image("image/png", "AAAA"),
        Opaque({"type": "acme-chart", "points": [1, 2, 3]}),
    ]
    before = message_size(assistant_message(blocks[:1]))
    for count in range(2, len(blocks) + 1):
        after = message_size(assistant_message(blocks[:count]))
        assert after.tokens > before.tokens
        assert after.bytes > before.bytes
        before = after
    assert before.media == 1


def test_a_message_without_content_is_not_sent() -> None:
    """A message without content has no size: it is left out of requests."""
    assert message_size(assistant_message([])) == Size()


def test_bytes_are_those_of_utf_8() -> None:
    """Characters of three bytes take three bytes, whatever they cost in tokens."""
    short, long = (message_size(user_message(text)).bytes for text in ("a", "a" + "語" * 100))
    assert long - short == 300


def test_a_signature_is_bytes_alone() -> None:
    """What a provider signed takes room on the wire and no tokens that anybody knows."""
    plain = message_size(assistant_message(Reasoning("hm")))
    signed = message_size(assistant_message(Reasoning("hm", signature="s" * 500)))
    assert signed == Size(plain.tokens, plain.bytes + 500)


def test_base64_in_an_unknown_block_counts_as_an_image() -> None:
    """A document of a megabyte in a block that we do not know is no million of tokens."""
    data = b64encode(bytes(1_000_000)).decode()
    size = message_size(user_message(Opaque({"type": "document", "source": {"data": data}})))
    assert size.media == 1
    assert MOST <= size.tokens < MOST + 100
    assert size.bytes > len(data)


def test_images_cost_few_tokens_and_many_bytes() -> None:
    """Fifty images of 600 kB are some tokens, fifty media and thirty megabytes."""
    image = Image("image/png", "A" * 600_000)
    size = message_size(tool_message("c1", [image] * 50))
    assert size.media == 50
    assert size.bytes > 30_000_000
    assert 50 * LEAST <= size.tokens <= 50 * MOST + 100


def test_a_header_has_the_size_of_what_every_request_carries() -> None:
    """System text, tool schemas and worked examples make the size of a header; settings do not."""
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    tool = ToolSchema("read", "Read a file of the project.", schema)
    example = {"examples": [{"role": "user", "content": "Show me the log"}]}
    bare = Header(CONFIG)
    assert header_size(bare) == Size()
    sizes = [
        header_size(Header(CONFIG, "You are a careful engineer.")),
        header_size(Header(CONFIG, "You are a careful engineer.", (tool,))),
        header_size(Header(CONFIG, "You are a careful engineer.", (tool, tool))),
        header_size(Header(CONFIG, "You are a careful engineer.", (tool, tool), example)),
    ]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == len(sizes)
