"""No test can reach a real provider."""

from __future__ import annotations

import asyncio
import os
import socket
import threading

import httpx
import openai
import pytest

refused = pytest.fail.Exception


@pytest.mark.parametrize("host", ["192.0.2.1", "10.0.0.1", "::ffff:192.0.2.1", "2001:db8::1"])
def test_a_connection_to_another_machine_fails_the_test(host: str) -> None:
    """A socket that connects beyond this machine fails the test before a packet is sent."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as sock, pytest.raises(refused, match="loopback"):
        sock.connect((host, 443))
    with socket.socket(family, socket.SOCK_DGRAM) as sock, pytest.raises(refused, match="loopback"):
        sock.sendto(b"x", (host, 53))


def test_a_name_is_not_looked_up() -> None:
    """A host's name does not even reach the resolver."""
    with pytest.raises(refused, match=r"api\.example"):
        socket.getaddrinfo("api.example", 443)


async def test_async_connections_are_refused_too() -> None:
    """The event loop's own connections are seen as well."""
    with pytest.raises(refused, match="loopback"):
        await asyncio.open_connection("192.0.2.1", 443)


def test_a_provider_call_fails_the_test_and_is_not_retried() -> None:
    """A client does not turn the refusal into an error of its own, which code may catch."""
    client = openai.OpenAI(api_key="none", base_url="https://api.example/v1", max_retries=2)
    with pytest.raises(refused, match="loopback"):
        client.models.list()
    with pytest.raises(refused, match="loopback"):
        httpx.get("https://192.0.2.1/")


def test_there_are_no_keys() -> None:
    """A developer's own keys are not in the environment that child processes get."""
    assert {"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "DEEPSEEK_API_KEY"} & set(os.environ) == set()


def _hang_up(server: socket.socket) -> None:
    server.accept()[0].close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_this_machine_can_be_reached(host: str) -> None:
    """Servers that a test starts on loopback are reached as usual."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        thread = threading.Thread(target=_hang_up, args=(server,))
        thread.start()
        with socket.create_connection((host, port)) as sock:
            assert sock.recv(1) == b""
        thread.join()
