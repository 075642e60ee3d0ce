"""The conformance suite of models: the rules of the port, as tests.

A model's test file is a few lines:

    class TestMyModel(ModelConformance):
        body = b'{"messages": ...}'

        @asynccontextmanager
        async def factory(self) -> AsyncGenerator[Model]:
            async with my_server() as server:
                yield MyModel(server.url)

The model must answer `body` again and again, each time with some text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from turnlog.content import Chunk, Finish, TextDelta, UsageChunk

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from turnlog.models.port import Body, Model


class _Segments:
    def __init__(self, body: bytes) -> None:
        middle = len(body) // 2
        self.segments = (body[:middle], b"", body[middle:])


class ModelConformance:
    """Every rule of the model port, as pytest tests; subclass it and give a `factory`."""

    body: bytes = b"{}"

    def factory(self) -> AbstractAsyncContextManager[Model]:
        """A model that answers, as long as its block lasts."""
        raise NotImplementedError

    async def _answer(self, model: Model, body: Body | None = None) -> list[Chunk]:
        async with model.stream(self.body if body is None else body) as chunks:
            return [chunk async for chunk in chunks]

    async def test_it_has_a_name(self) -> None:
        """The name is `provider:model…`, the encoder `name@version`, the window tokens or None."""
        async with self.factory() as model:
            assert model.name.startswith(f"{model.provider}:{model.model}")
            name, at, version = model.encoder.partition("@")
            assert name
            assert at
            assert version.isdigit()
            assert model.context_window is None or model.context_window > 0
            assert model.native_tools in {True, False}

    async def test_a_stream_ends_with_one_finish(self) -> None:
        """There is one `Finish`, it comes last, and usage that was reported says something."""
        async with self.factory() as model:
            chunks = await self._answer(model)
        assert [type(chunk) for chunk in chunks].count(Finish) == 1
        assert isinstance(chunks[-1], Finish)
        assert any(isinstance(chunk, TextDelta) for chunk in chunks)
        for chunk in chunks:
            if isinstance(chunk, UsageChunk):
                counts = (chunk.usage.input_tokens, chunk.usage.output_tokens)
                assert any(count is not None for count in counts)

    async def test_a_body_may_come_in_pieces(self) -> None:
        """A body of segments is taken as its bytes are."""
        async with self.factory() as model:
            assert isinstance((await self._answer(model, _Segments(self.body)))[-1], Finish)

    async def test_leaving_early_is_no_trouble(self) -> None:
        """After a stream that was left, by break, unread or cancelled, the next one is answered."""
        async with self.factory() as model:
            async with model.stream(self.body) as chunks:
                async for _ in chunks:
                    break
            async with model.stream(self.body):
                pass
            with anyio.CancelScope() as scope:
                async with model.stream(self.body) as chunks:
                    async for _ in chunks:
                        scope.cancel()
                        await anyio.lowlevel.checkpoint()
            assert scope.cancelled_caught
            assert isinstance((await self._answer(model))[-1], Finish)

    async def test_streams_run_beside_each_other(self) -> None:
        """Streams of concurrent tasks are all answered, whoever keeps connections open."""
        answers: list[list[Chunk]] = []

        async def ask(model: Model) -> None:
            async with model.connected():
                answers.append(await self._answer(model))

        async with self.factory() as model, anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask, model)
        assert [type(chunks[-1]) for chunks in answers] == [Finish] * 3

    async def test_connected_may_be_nested(self) -> None:
        """`connected` may be entered again inside itself, and left in that order."""
        async with self.factory() as model:
            async with model.connected():
                async with model.connected():
                    assert await self._answer(model)
                assert await self._answer(model)
            assert await self._answer(model)
