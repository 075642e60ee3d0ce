"""A server of chat completions in a process of its own, which says when each request began.

It answers each request with the same small stream: the text "done.", or, with `x-calls: K` bytes in
the system text, nothing else; the number of the request decides between a tool call and text.

    python chat_server.py CALLS

The first line it prints is its port. Of `CALLS` + 1 requests in a row all but the last are answered
by a call of the tool `noop`. Each request becomes one line: the clock at its first byte
(`time.monotonic_ns`, which processes share) and the size of its body.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time


def _event(delta: dict[str, object], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def _answer(call: int | None) -> bytes:
    if call is None:
        said = _event({"content": "done."}) + _event({}, "stop")
    else:
        function = {"name": "noop", "arguments": "{}"}
        made = {"index": 0, "id": f"call_{call}", "type": "function", "function": function}
        said = _event({"tool_calls": [made]}) + _event({}, "tool_calls")
    body = said + b"data: [DONE]\n\n"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


def _serve(connection: socket.socket, calls: int, number: int) -> int:
    """Answer the requests of one connection; returns the number of the next one."""
    kept = b""
    while True:
        first = None
        while b"\r\n\r\n" not in kept:
            piece = connection.recv(1 << 20)
            if not piece:
                return number
            first = first or time.monotonic_ns()
            kept += piece
        head, _, rest = kept.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        size = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
        left = size - len(rest)
        while left > 0:
            left -= len(connection.recv(min(left, 1 << 20)))
        kept = b""
        last = number % (calls + 1) == calls
        connection.sendall(_answer(None if last else number))
        os.write(1, b"%d %d\n" % (first or 0, size))
        number += 1


def main() -> None:
    """Serve one connection after another until killed."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        os.write(1, b"%d\n" % server.getsockname()[1])
        number = 0
        while True:
            connection, _ = server.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection:
                number = _serve(connection, int(sys.argv[1]), number)


if __name__ == "__main__":
    main()
