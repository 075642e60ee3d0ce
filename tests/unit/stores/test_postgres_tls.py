"""TLS to a PostgreSQL server: as the URL asks for, or no connection at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.servers.certificates import Authority, authority
from tests.servers.postgres import Server, server, unprivileged
from turnlog.stores.postgres.driver import PostgresDriver
from turnlog.stores.server.driver import Fault
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
    """Why no connection to a URL is to be had."""
    with pytest.raises(Fault) as fault:
        await PostgresDriver(url, shown(url)).connect()
    return str(fault.value)


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
        assert "certificate verify failed" in said
    named_otherwise = url.replace("127.0.0.1", "localhost")
    said = await refusal(f"{named_otherwise}&sslmode=verify-full&sslrootcert={ours}")
    assert "Hostname mismatch" in said
    assert await is_encrypted(f"{named_otherwise}&sslmode=verify-ca&sslrootcert={ours}")
