"""The local server as a context, for the scripts that measure against it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from measure import HERE

from turnlog.models.openai import OpenAIModel


class Server:
    """The server while it runs."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.url = f"http://127.0.0.1:{int(self._line())}/v1"

    def _line(self) -> bytes:
        if self._process.stdout is None:
            msg = "expected a pipe"
            raise ValueError(msg)
        return self._process.stdout.readline()

    def request(self) -> tuple[int, int]:
        """When the next request's first byte came (`time.monotonic_ns`), and its body's size."""
        first, size = self._line().split()
        return int(first), int(size)

    def model(self) -> OpenAIModel:
        """A model that this server plays."""
        return OpenAIModel("openai-compatible", "m", self.url)


@contextmanager
def chat_server(calls: int = 0) -> Iterator[Server]:
    """A server that answers `calls` requests by a tool call, then one by text, and again."""
    command = [sys.executable, str(HERE / "chat_server.py"), str(calls)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: S603
        try:
            yield Server(process)
        finally:
            process.kill()
