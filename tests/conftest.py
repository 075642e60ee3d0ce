"""What every test stands on: no network, deterministic property tests, the corpus of real sessions.

Whatever sessions a test runs agents on, their requests must extend each other's prefix.

Environment: `TURNLOG_SHARED` is the folder that holds `corpus/` (by default `shared`, beside the
checkout); with `TURNLOG_REQUIRE_CORPUS=1` a missing corpus fails the tests that need it instead of
skipping them.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

# --- property tests -----------------------------------------------------------------------------
# A commit passes or fails always in the same way: examples are derived from the test, not drawn.
# No deadlines, since a slow machine is not a fault.

settings.register_profile("ci", derandomize=True, print_blob=True, deadline=None, database=None)
settings.register_profile(
    "long",
    settings.get_profile("ci"),
    max_examples=1_000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")  # `--hypothesis-profile=long` takes its place

# --- no test reaches a real provider ------------------------------------------------------------

_ADDRESSED = {
    "socket.connect": 1,
    "socket.sendto": 1,
    "socket.sendmsg": 1,
    "socket.getaddrinfo": 0,
    "socket.gethostbyname": 0,
    "socket.gethostbyaddr": 0,
}
_INTERNET = {socket.AF_INET, socket.AF_INET6}
_API_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "DEEPSEEK_API_KEY")


def _is_local(host: object) -> bool:
    if isinstance(host, (bytes, bytearray)):
        host = host.decode("idna")
    if host in {None, "", "localhost"}:
        return True
    try:
        address = ipaddress.ip_address(str(host))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    address = mapped or address
    return address.is_loopback or address.is_unspecified


def _refuse_network(event: str, args: tuple[object, ...]) -> None:
    """Fail the test that talks to anything but this machine, whichever library does it.

    An audit hook sees every socket of the process and cannot be taken off. `pytest.fail` raises a
    BaseException, which no `except Exception` of a client library turns into a retry.
    """
    where = _ADDRESSED.get(event)
    if where is None:
        return
    target = args[where]
    if where == 1:
        if getattr(args[0], "family", None) not in _INTERNET or target is None:
            return
        if isinstance(target, tuple):
            target = cast("tuple[object, ...]", target)[0]
    if not _is_local(target):
        pytest.fail(f"{event}: a test may reach loopback addresses only, this is {target!r}")


sys.addaudithook(_refuse_network)
for _key in _API_KEYS:
    os.environ.pop(_key, None)  # child processes cannot reach a provider either

# --- fixtures -----------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Asyncio, unless a test or a module says otherwise with a fixture of this name."""
    return "asyncio"


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of real sessions, read only."""
    folder = Path(os.environ.get("TURNLOG_SHARED") or ROOT.parent / "shared") / "corpus"
    if not folder.is_dir():
        reason = f"no corpus at {folder} (TURNLOG_SHARED names the folder that holds it)"
        if os.environ.get("TURNLOG_REQUIRE_CORPUS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return folder


@pytest.fixture(autouse=True)
def _requests_extend_each_other(  # pyright: ignore[reportUnusedFunction]
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[None]:
    """Of every session that an agent ran on, each step request extends the one before it."""
    loop: Any = sys.modules.get("turnlog.agent.loop")
    if loop is None:  # the test's module uses no agent
        yield
        return
    from tests.prefixes import broken_prefixes  # noqa: PLC0415 - only where there are agents

    ran: dict[int, Any] = {}
    stream = loop.ReactLoopAgent.stream

    def remember(agent: Any, session: Any, *args: Any, **options: Any) -> Any:
        ran[id(session)] = session
        return stream(agent, session, *args, **options)

    monkeypatch.setattr(loop.ReactLoopAgent, "stream", remember)
    yield
    for session in ran.values():
        assert broken_prefixes(session) == []
