"""OpenAI-compatible chat completions: `openai:`, `deepseek:`, `openai-compatible:`.

turnlog encodes the request itself and has promised that exactly those bytes are sent, so this talks
HTTP with httpx2, the client that the providers' SDKs stand on, and not through an SDK: an SDK
encodes, retries and reads streams by itself, and all three are ours (the log has every attempt).

A key goes only to the host it is configured for: redirects are not followed, and a key from
`$OPENAI_API_KEY` is not used with a `base_url` from anywhere but `$OPENAI_BASE_URL`.
"""

from __future__ import annotations

import os
import re
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

import anyio
from anyio.lowlevel import RunVar

from turnlog import _ambient, jsontext
from turnlog.errors import InvalidModel, MissingExtra
from turnlog.models.chat_stream import DONE, ChatStream
from turnlog.models.failures import failure_of, transport_failure
from turnlog.models.port import Body, Chunks, segments
from turnlog.models.sse import ServerEvent, SseDecoder

try:
    import httpx2
except ImportError as error:
    message = "models over HTTP need the package httpx2: pip install 'turnlog[openai]'"
    raise MissingExtra(message) from error

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Sequence

    from turnlog.content import Chunk

# Where it is, how its variables in the environment begin, and which encoder it takes.
_HOSTS: Final = {
    "openai": ("https://api.openai.com/v1", "OPENAI", "openai@1"),
    "deepseek": ("https://api.deepseek.com", "DEEPSEEK", "deepseek@1"),
}
# Tokens of prompt and answer together, by the beginning of the model's name.
_WINDOWS: Final = (
    ("gpt-5", 400_000),
    ("gpt-4.1", 1_047_576),
    ("gpt-4o", 128_000),
    ("o3", 200_000),
    ("o4-mini", 200_000),
    ("deepseek-", 131_072),
)
_CONNECT_S: Final = 30.0
_KEEP_S: Final = 15.0
_END_S: Final = 1.0
_PIECE: Final = 256 * 1024
_MAX_LINE: Final = 64 * 1024 * 1024
_MAX_ERROR: Final = 1024 * 1024


class OpenAIModel:
    """A model behind `POST {base_url}/chat/completions`.

    Args:
        provider, model: as in the model's name.
        base_url: as providers document it, `/v1` included.
        api_key: sent as a bearer token to `base_url`, and never shown.
        name: the full name, when it is not `provider:model`.
        encoder: the dialect of the bodies it takes.
        context_window: in tokens, where known.
        native_tools: whether the server understands `tools`.
        keep_connections: whether `connected` keeps them; without, each stream makes its own.
        idle_timeout: seconds without a byte after which an answer is given up.
        new_id: names tool calls that the server left without an id.
    """

    def __init__(  # noqa: PLR0913 - most of them rarely needed ones have defaults
        self,
        provider: str,
        model: str,
        base_url: str,
        *,
        api_key: str | None = None,
        name: str | None = None,
        encoder: str = "openai@1",
        context_window: int | None = None,
        native_tools: bool = True,
        keep_connections: bool = True,
        idle_timeout: float = 600.0,
        new_id: Callable[[], str] = _ambient.new_id,
    ) -> None:
        self.provider = provider
        self.model = model
        self.name = name or f"{provider}:{model}"
        self.encoder = encoder
        self.context_window = context_window
        self.native_tools = native_tools
        self._url = f"{_checked_url(base_url)}/chat/completions"
        self._key = _checked_key(api_key)
        self._timeout = httpx2.Timeout(idle_timeout, connect=_CONNECT_S, pool=None)
        self._limits = httpx2.Limits(
            max_connections=None,
            max_keepalive_connections=None if keep_connections else 0,
            keepalive_expiry=_KEEP_S,
        )
        self._new_id = new_id
        self._shared: RunVar[_Shared | None] = RunVar(f"turnlog {self.name}", None)

    def __repr__(self) -> str:
        return f"<model {self.name}>"

    @asynccontextmanager
    async def stream(self, body: Body) -> AsyncGenerator[Chunks]:
        """Send a body and stream the answer (`turnlog.models.port`)."""
        async with self._client() as client:
            with _transport_errors():
                response = await client.send(self._request(client, segments(body)), stream=True)
            async with _pieces(response) as pieces:
                if not response.is_success:
                    raise failure_of(
                        response.status_code,
                        self._hide_key(await _read(pieces, _MAX_ERROR)),
                        {key.lower(): value for key, value in response.headers.items()},
                        now=_ambient.clock() / 1000,
                    )
                whole = response.headers.get("content-type", "").startswith("application/json")
                answer = ChatStream(self._new_id)
                async with aclosing((_message if whole else _chunks)(answer, pieces)) as chunks:
                    yield chunks

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[None]:
        """Keep connections open between streams while inside (`turnlog.models.port`)."""
        async with self._client():
            yield

    @asynccontextmanager
    async def _client(self) -> AsyncGenerator[httpx2.AsyncClient]:
        """The client of this event loop, open as long as anybody is inside."""
        shared = self._shared.get()
        if shared is None:
            shared = _Shared(self._new_client())
            self._shared.set(shared)
        shared.users += 1
        try:
            yield shared.client
        finally:
            shared.users -= 1
            if not shared.users:
                self._shared.set(None)
                with anyio.CancelScope(shield=True):
                    await shared.client.aclose()

    def _new_client(self) -> httpx2.AsyncClient:
        # A proxy of the environment is none for a server on this machine.
        local = _is_loopback(urlsplit(self._url).hostname or "")
        return httpx2.AsyncClient(timeout=self._timeout, limits=self._limits, trust_env=not local)

    def _request(self, client: httpx2.AsyncClient, pieces: Sequence[bytes]) -> httpx2.Request:
        headers = {
            "accept": "text/event-stream",
            "accept-encoding": "identity",
            "content-type": "application/json",
            "content-length": str(sum(map(len, pieces))),
        }
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        return client.build_request("POST", self._url, headers=headers, content=_send(pieces))

    def _hide_key(self, body: bytes) -> bytes:
        return body.replace(self._key.encode(), b"***") if self._key else body


class _Shared:
    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client
        self.users = 0


def open_openai(
    provider: str,
    model: str,
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    context_window: int | None = None,
) -> OpenAIModel:
    """A model of `openai` or `deepseek`, with the key and address of the environment.

    Raises:
        InvalidModel: no key.
    """
    own_url, prefix, encoder = _HOSTS[provider]
    key = api_key
    if base_url is None:
        base_url = os.environ.get(f"{prefix}_BASE_URL") or own_url
        key = key or os.environ.get(f"{prefix}_API_KEY")
    if not key:
        hint = f"set {prefix}_API_KEY" if base_url == own_url else "pass api_key="
        raise InvalidModel(f"{provider}:{model} needs a key: {hint}")
    if context_window is None:
        context_window = next((size for start, size in _WINDOWS if model.startswith(start)), None)
    return OpenAIModel(
        provider,
        model,
        base_url,
        api_key=key,
        encoder=encoder,
        context_window=context_window,
    )


def open_compatible(
    name: str, *, api_key: str | None = None, context_window: int | None = None
) -> OpenAIModel:
    """A model of any compatible server, from `MODEL@BASE_URL`.

    Its key, if it needs one, is in `$TURNLOG_API_KEYS`: `HOST[:PORT]=KEY` pairs between blanks.

    Raises:
        InvalidModel: no model or no address in the name.
    """
    found = re.fullmatch(r"(.+?)@(https?://\S+)", name)
    if found is None:
        raise InvalidModel(
            "expected openai-compatible:MODEL@BASE_URL, as in m@http://localhost:8080/v1"
        )
    model, base_url = found.groups()
    key = api_key or _configured_key(_checked_url(base_url))
    return OpenAIModel(
        "openai-compatible",
        model,
        base_url,
        name=f"openai-compatible:{name}",
        api_key=key,
        context_window=context_window,
    )


def _configured_key(base_url: str) -> str | None:
    address = urlsplit(base_url)
    for pair in os.environ.get("TURNLOG_API_KEYS", "").split():
        host, equals, key = pair.partition("=")
        if equals and host.lower() in {address.netloc.lower(), address.hostname}:
            return key
    return None


def _checked_key(key: str | None) -> str | None:
    """The key without blanks around it; one that no header can carry is refused, unquoted."""
    key = (key or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise InvalidModel("expected a key of printable ASCII characters")
    return key or None


def _checked_url(base_url: str) -> str:
    """The address without a slash at its end.

    Raises:
        InvalidModel: not http or https, or with a user name or password, which would be logged.
    """
    try:
        address = urlsplit(base_url)
        usable = address.scheme in {"http", "https"} and bool(address.hostname)
        usable = usable and "@" not in address.netloc and address.port != 0
    except ValueError:  # the port is no number
        usable = False
    if not usable:
        raise InvalidModel("expected a base URL http(s)://HOST[:PORT][/PATH] without user name")
    return base_url.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _send(pieces: Sequence[bytes]) -> AsyncIterator[bytes]:
    """The body in writes of a sensible size; small pieces are joined, large ones go uncopied."""
    small: list[bytes] = []
    size = 0
    for piece in pieces:
        small.append(piece)
        size += len(piece)
        if size >= _PIECE:
            yield small[0] if len(small) == 1 else b"".join(small)
            small, size = [], 0
    if small:
        yield b"".join(small)


@asynccontextmanager
async def _pieces(response: httpx2.Response) -> AsyncGenerator[AsyncIterator[bytes]]:
    """The body as it arrives; leaving closes the response, and the connection if more was to come.

    httpx2's iterators are generators within generators, of which only the outermost can be closed.
    With the response closed there is nothing to read, so running on ends them all.
    """
    pieces = response.aiter_bytes()
    try:
        yield pieces
    finally:
        with anyio.CancelScope(shield=True):
            await response.aclose()
            with suppress(httpx2.HTTPError, httpx2.StreamError):
                async for _ in pieces:
                    pass


async def _chunks(answer: ChatStream, pieces: AsyncIterator[bytes]) -> AsyncGenerator[Chunk]:
    """The chunks of an event stream."""
    decoder = SseDecoder()
    while not answer.done and (piece := await _next(pieces)) is not None:
        for event in decoder.feed(piece):
            for chunk in answer.feed(_json_of(event)):
                yield chunk
        if decoder.waiting > _MAX_LINE:
            raise transport_failure(f"a line of more than {_MAX_LINE} bytes")
    for event in decoder.close():
        for chunk in answer.feed(_json_of(event)):
            yield chunk
    for chunk in answer.close():
        yield chunk
    # The connection can be used again if the server ends the answer, which it may forget.
    with anyio.move_on_after(_END_S):
        while await _next(pieces) is not None:
            pass


async def _message(answer: ChatStream, pieces: AsyncIterator[bytes]) -> AsyncGenerator[Chunk]:
    """The chunks of a whole message, from a server that does not stream."""
    for chunk in answer.feed(_json(await _read(pieces, _MAX_LINE))):
        yield chunk
    answer.done = True
    for chunk in answer.close():
        yield chunk


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    with _transport_errors():
        return await anext(pieces, None)


async def _read(pieces: AsyncIterator[bytes], limit: int) -> bytes:
    """The body, up to a limit: what comes after it is not read."""
    body = bytearray()
    while len(body) < limit and (piece := await _next(pieces)) is not None:
        body += piece
    return bytes(body)


def _json_of(event: ServerEvent) -> Any:
    if event.data == DONE:
        return DONE
    value = _json(event.data.encode())
    if event.name == "error" and not (isinstance(value, dict) and "error" in value):
        return dict[str, Any](error=value or "no reason given")
    return cast("Any", value)


def _json(raw: bytes) -> Any:
    if not raw.strip():
        return None
    try:
        return jsontext.decode(raw)
    except ValueError:
        start = raw[:80].decode(errors="replace")
        raise transport_failure(f"expected JSON from the server, got {start!r}") from None


@contextmanager
def _transport_errors() -> Generator[None]:
    try:
        yield
    except (httpx2.TransportError, httpx2.DecodingError) as error:
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise transport_failure(said) from error
