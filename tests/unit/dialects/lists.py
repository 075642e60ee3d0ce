"""Message lists as programs keep them: legal ones of both dialects, oddly spelled too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Draw = Callable[..., Any]
Json = dict[str, Any]

words = st.sampled_from(["hi", " a\n", "\ud83d", "\u2028", "\x00\x7fextra", "{}"])
scalars = st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.floats(-2, 2), words)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(st.sampled_from(["k", "type", "value", "\x7fextra"]), inner, max_size=2),
    ),
    max_leaves=4,
)
keys = st.sampled_from(["name", "refusal", "annotations", "id", "source", "wire", "extra"])
part_keys = st.sampled_from(["index", "wire", "data"])
nothing: Json = {}
marker: Json = {"cache_control": {"type": "ephemeral"}}
unknown = st.one_of(st.just(nothing), st.dictionaries(keys, values, max_size=2))
part_unknown = st.one_of(st.just(nothing), st.dictionaries(part_keys, values, max_size=2))
markers = st.sampled_from([nothing, nothing, marker])


@st.composite
def _merged(draw: Draw, base: st.SearchStrategy[Json], more: st.SearchStrategy[Json]) -> Json:
    return {**draw(more), **draw(base)}


def text_part(more: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    """A text part, in both dialects the same."""
    return _merged(words.map(lambda text: {"type": "text", "text": text}), more)


# -- OpenAI ------------------------------------------------------------------------------------

_urls = ["https://x.example/y.png", "data:image/png;base64,aGk=", "data:text/plain,hi"]
_image_urls: list[Json] = [
    {"url": url, **more} for url in _urls for more in ({}, {"detail": "low"})
]
_image_parts: list[Json] = [{"type": "image_url", "image_url": image} for image in _image_urls]
_odd_parts: list[Json] = [
    {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
    {"type": "file", "file": {"file_id": "f"}},
    {"type": "image", "image": "x"},
    {"type": "image_url", "image_url": "https://x.example/y.png"},
    {"type": "openai/text", "part": {}},
]
_parts = st.lists(
    st.one_of(text_part(part_unknown), st.sampled_from(_image_parts + _odd_parts)),
    min_size=1,
    max_size=3,
)
_content = st.one_of(words, _parts)
_spelled_calls = st.sampled_from(["function", "custom", "untyped"])


@st.composite
def _openai_group(draw: Draw) -> list[Json]:
    ids = draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True))
    calls: list[Json] = []
    for call_id in ids:
        kind = draw(_spelled_calls)
        body = "custom" if kind == "custom" else "function"
        inner = {"name": "f", "input" if kind == "custom" else "arguments": draw(words)}
        call = {**draw(part_unknown), "id": call_id, body: {**draw(part_unknown), **inner}}
        calls.append(call if kind == "untyped" else {**call, "type": kind})
    answer: Json = {"role": "assistant", "tool_calls": calls, **draw(unknown)}
    said = draw(st.one_of(st.sampled_from([None, "", "absent"]), _content))
    if said != "absent":
        answer["content"] = said
    if draw(st.booleans()):
        answer["reasoning_content"] = draw(st.one_of(st.just(""), st.none(), words))
    results: list[Json] = [
        {
            **draw(unknown),
            "role": "tool",
            "tool_call_id": i,
            "content": draw(st.one_of(st.just(""), _content)),
        }
        for i in ids
    ]
    return [answer, *results]


@st.composite
def _openai_single(draw: Draw) -> list[Json]:
    role = draw(st.sampled_from(["user", "assistant", "system", "developer"]))
    content = draw(st.one_of(st.just(""), _content))
    return [{**draw(unknown), "role": role, "content": content}]


@st.composite
def openai_lists(draw: Draw) -> list[Json]:
    """Legal chat-completions lists."""
    refused: Json = {"role": "assistant", "content": None, "refusal": "no", "tool_calls": None}
    runs = st.one_of(_openai_single(), _openai_group(), st.just([refused]))
    return [message for run in draw(st.lists(runs, max_size=5)) for message in run]


# -- Anthropic ---------------------------------------------------------------------------------

_sources: list[Json] = [
    {"type": "base64", "media_type": "image/png", "data": "aGk="},
    {"type": "url", "url": "https://x.example/y.png"},
    {"type": "url", "url": "https://x.example/y.png", "more": 1},
    {"type": "file", "file_id": "f"},
]
_shown: list[Json] = [{"type": "image", "source": source} for source in _sources]
_source: Json = {"type": "text", "media_type": "text/plain", "data": "d"}
_document: Json = {"type": "document", "source": _source}
_blocks = st.one_of(
    text_part(markers),
    text_part(part_unknown),
    _merged(st.sampled_from([*_shown, _document]), markers),
)
_thinking: list[Json] = [
    {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
    {"type": "thinking", "thinking": "", "signature": "c2ln"},
    {"type": "redacted_thinking", "data": "ZW5j"},
    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
]
_thoughts = st.sampled_from(_thinking)
_inputs = st.dictionaries(words, values, max_size=2)


@st.composite
def _anthropic_group(draw: Draw) -> list[Json]:
    ids = draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True))
    content: list[Json] = draw(st.lists(st.one_of(_thoughts, text_part(markers)), max_size=2))
    for call_id in ids:
        use = {"type": "tool_use", "id": call_id, "name": "f", "input": draw(_inputs)}
        content += [{**use, **draw(markers)}, *draw(st.lists(_thoughts, max_size=1))]
    results: list[Json] = []
    for call_id in ids:
        result = {"type": "tool_result", "tool_use_id": call_id, **draw(markers)}
        said = draw(
            st.one_of(st.sampled_from(["absent", ""]), words, st.lists(_blocks, max_size=2))
        )
        if said != "absent":
            result["content"] = said
        results.append(
            result | draw(st.sampled_from([{}, {"is_error": True}, {"is_error": False}]))
        )
    results += draw(st.lists(_blocks, max_size=2))
    return [
        {**draw(unknown), "role": "assistant", "content": content},
        {**draw(unknown), "role": "user", "content": results},
    ]


@st.composite
def _anthropic_single(draw: Draw) -> list[Json]:
    role = draw(st.sampled_from(["user", "user", "assistant", "system"]))
    content = draw(st.one_of(words, st.lists(_blocks, min_size=1, max_size=3)))
    return [{**draw(unknown), "role": role, "content": content}]


@st.composite
def anthropic_lists(draw: Draw) -> list[Json]:
    """Legal lists of Anthropic's."""
    runs = st.one_of(_anthropic_single(), _anthropic_group())
    return [message for run in draw(st.lists(runs, max_size=5)) for message in run]
