"""A server of chat completions with every ugly moment, on loopback, for asyncio and trio.

It records the exact bytes of each request and sends exactly the pieces that a test gives it.

    async with chat_server(Reply.events({...}, "[DONE]"), Reply(429, ...)) as server:
        server.url; server.requests[0].body
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Literal

import anyio
import anyio.abc
import msgspec


class _Hang:
    """Send nothing more until the client leaves."""


HANG: Final = _Hang()
Piece = bytes | _Hang


@dataclass(frozen=True)
class Request:
    """One request as it came over the wire."""

    head: bytes
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        """By lower-case name."""
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        pairs = (line.partition(":") for line in lines if line)
        return {name.strip().lower(): value.strip() for name, _, value in pairs}


@dataclass(frozen=True)
class Reply:
    """What the server answers: `pieces` one by one, then an orderly end, unless it is `cut`."""

    status: int = 200
    pieces: Sequence[Piece] = ()
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    framing: Literal["chunked", "close"] = "chunked"
    cut: bool = False
    early: bool = False  # before the body of the request was read

    @staticmethod
    def events(*events: Any, **options: Any) -> Reply:
        """A stream of events: JSON values, text after `data: `, or bytes and HANG as they are."""
        return Reply(pieces=[_event(event) for event in events], **options)

    @staticmethod
    def error(status: int, body: Any, **headers: str) -> Reply:
        """A refusal with a JSON body."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        content = {"content-type": "application/json"}
        return Reply(status, [msgspec.json.encode(body)], {**content, **named})


def _event(event: Any) -> Piece:
    if isinstance(event, (bytes, _Hang)):
        return event
    data = event.encode() if isinstance(event, str) else msgspec.json.encode(event)
    return b"data: " + data + b"\n\n"


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """An event of a stream with one choice."""
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def words(*texts: str) -> list[dict[str, Any]]:
    """Events of text, and the reason to stop."""
    return [*(delta(content=text) for text in texts), delta("stop")]


class ChatServer:
    """The server while it runs.

    Attributes:
        url: the base URL.
        requests: what it got.
        connections: how many connections were made.
        left: set when a client leaves a reply that hangs.
    """

    def __init__(self, replies: Sequence[Reply], port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1"
        self.requests: list[Request] = []
        self.connections = 0
        self.left = anyio.Event()
        self._replies = list(replies)

    async def handle(self, stream: anyio.abc.SocketStream) -> None:
        """Serve one connection."""
        self.connections += 1
        async with stream:
            try:
                while await self._exchange(stream):
                    pass
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass  # the client has gone, which is its right

    async def _exchange(self, stream: anyio.abc.SocketStream) -> bool:
        data = b""
        while b"\r\n\r\n" not in data:
            data += await stream.receive()
        head, _, body = data.partition(b"\r\n\r\n")
        reply = self._replies.pop(0)
        wanted = int(Request(head, b"").headers["content-length"])
        while len(body) < wanted and not reply.early:
            body += await stream.receive()
        self.requests.append(Request(head, body))
        await self._answer(stream, reply)
        return reply.framing == "chunked" and not reply.cut and not reply.early

    async def _answer(self, stream: anyio.abc.SocketStream, reply: Reply) -> None:
        chunked = reply.framing == "chunked"
        headers = {"content-type": "text/event-stream", **reply.headers}
        headers["transfer-encoding" if chunked else "connection"] = reply.framing
        lines = [f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        await stream.send("\r\n".join([*lines, "", ""]).encode("latin-1"))
        for piece in reply.pieces:
            if isinstance(piece, _Hang):
                try:
                    await stream.receive()
                finally:
                    self.left.set()
            elif piece:
                await stream.send(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        if chunked and not reply.cut:
            await stream.send(b"0\r\n\r\n")


@asynccontextmanager
async def chat_server(*replies: Reply) -> AsyncGenerator[ChatServer]:
    """A server that gives these replies, one for each request."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        port: int = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610 - no Django
        server = ChatServer(replies, port)
        tasks.start_soon(listener.serve, server.handle)
        yield server
        tasks.cancel_scope.cancel()
