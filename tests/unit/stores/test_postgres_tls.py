"""TLS to a PostgreSQL server: as the URL asks for, or no connection at all."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import anyio
import pytest

from tests.servers.certificates import Authority, authority
from tests.servers.postgres import Server, server, unprivileged
from turnlog.stores.postgres.driver import CONNECT_TIMEOUT, PostgresDriver
from turnlog.stores.server.driver import Fault, Trouble
from turnlog.stores.server.urls import shown

pytestmark = pytest.mark.anyio

_ENCRYPTED = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"


@pytest.fixture
def ours() -> Authority:
    """Whose certificate is for the address at which the server is."""
    return authority("IP:127.0.0.1")


@pytest.fixture
def others() -> Authority:
    """Who signed no certificate of a server's here."""
    return authority("DNS:other.example")


def encrypting(by: Authority) -> Server:
    """A server with the authority's certificate, whose key only the server may read."""
    key = Path(f"{by.key}.postgres")
    if not key.exists():
        shutil.copy(by.key, key)
        key.chmod(0o600)
        user = unprivileged()
        if user is not None:
            shutil.chown(key, user)
    return server(ssl="on", ssl_cert_file=str(by.certificate), ssl_key_file=str(key))


async def is_encrypted(url: str) -> bool:
    """Whether the server says that what is sent to it over a connection to the URL is encrypted."""
    db = await PostgresDriver(url, shown(url)).connect()
    try:
        ((encrypted,),) = await db.fetch(_ENCRYPTED)
        return encrypted
    finally:
        await db.close()


async def refusal(url: str) -> str:
    """Why no connection to a URL is to be had, now or later."""
    with pytest.raises(Fault) as fault:
        await PostgresDriver(url, shown(url)).connect()
    assert fault.value.trouble is Trouble.REFUSED
    return f"{fault.value.hint} [{fault.value}]"


async def test_a_verified_server_is_spoken_to_in_cipher(ours: Authority) -> None:
    """With the authority that signed its certificate a server is known, and all is encrypted."""
    url = encrypting(ours).tcp_url()
    assert not await is_encrypted(f"{url}&sslmode=disable")
    for query in (f"sslmode=verify-full&sslrootcert={ours}", "sslmode=require"):
        assert await is_encrypted(f"{url}&{query}")


async def test_an_unknown_server_is_not_spoken_to(ours: Authority, others: Authority) -> None:
    """A certificate that another authority signed, or for another name, is refused."""
    url = encrypting(ours).tcp_url()
    for mode in ("verify-ca", "verify-full"):
        said = await refusal(f"{url}&sslmode={mode}&sslrootcert={others}")
        assert "see sslrootcert, which signed its certificate" in said
        assert "certificate verify failed" in said
    named_otherwise = url.replace("127.0.0.1", "localhost")
    said = await refusal(f"{named_otherwise}&sslmode=verify-full&sslrootcert={ours}")
    assert "Hostname mismatch" in said
    assert await is_encrypted(f"{named_otherwise}&sslmode=verify-ca&sslrootcert={ours}")
    assert await is_encrypted(
        f"{url}&sslmode=prefer&sslrootcert={others}"
    )  # which verifies nothing


async def test_a_server_without_tls_is_not_spoken_to_plainly() -> None:
    """Who asks for TLS gets none of a server that has none, and is told so."""
    assert "has no TLS" in await refusal(f"{server().tcp_url()}&sslmode=require")
    assert not await is_encrypted(f"{server().tcp_url()}&sslmode=prefer")


async def test_a_file_that_is_no_certificate_is_refused(ours: Authority, tmp_path: Path) -> None:
    """Not as a server that is away."""
    (tmp_path / "odd").write_text("no certificate")
    url = encrypting(ours).tcp_url()
    for mode, option in (("verify-full", "sslrootcert"), ("require", "sslcert")):
        said = await refusal(f"{url}&sslmode={mode}&{option}={tmp_path / 'odd'}")
        assert "a file of the TLS options is not what it should be" in said


@pytest.mark.parametrize(
    ("answer", "trouble", "said"),
    [
        (b"HTTP/1.1 400 Bad Request", Trouble.REFUSED, "is no PostgreSQL server"),
        (b"", Trouble.LOST, "said nothing, and hung up"),
    ],
)
async def test_what_is_no_postgresql_server_is_said_to_be_none(
    answer: bytes, trouble: Trouble, said: str
) -> None:
    """Whoever answers in another language, or not at all."""

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as other:
        url = f"postgresql://u@127.0.0.1:{other.sockets[0].getsockname()[1]}/db"
        with pytest.raises(Fault) as fault:
            await PostgresDriver(url, url).connect()
    assert fault.value.trouble is trouble
    assert said in f"{fault.value.hint} [{fault.value}]"


async def test_who_never_answers_is_waited_for_no_longer_than_the_url_says() -> None:
    """And that is what is said then."""
    gone = anyio.Event()

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        gone.set()

    async with await asyncio.start_server(hear, "127.0.0.1", 0) as other:
        port = other.sockets[0].getsockname()[1]
        url = f"postgresql://u@127.0.0.1:{port}/db?connect_timeout=1"
        with anyio.fail_after(CONNECT_TIMEOUT - 1), pytest.raises(Fault) as fault:
            await PostgresDriver(url, url).connect()
        await gone.wait()
    assert "no answer in time" in str(fault.value)
