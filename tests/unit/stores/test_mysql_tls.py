"""TLS to a MySQL server: as the URL asks for, or no connection at all."""

from __future__ import annotations

import pytest

from tests.servers.certificates import Authority, authority
from tests.servers.mariadb import Server, server
from tests.unit.stores.mysql_stores import connected
from turnlog.stores.mysql.driver import MySqlDriver
from turnlog.stores.mysql.urls import options_of
from turnlog.stores.server.driver import Fault, Trouble

pytestmark = pytest.mark.anyio


def encrypting(by: Authority) -> Server:
    """A server with the authority's certificate."""
    return server(ssl_ca=str(by), ssl_cert=str(by.certificate), ssl_key=str(by.key))


@pytest.fixture
def ours() -> Authority:
    """Whose certificate is for the address at which the server is."""
    return authority("IP:127.0.0.1")


@pytest.fixture
def others() -> Authority:
    """Who signed no certificate of a server's here."""
    return authority("DNS:other.example")


async def cipher(url: str) -> str:
    """With what a connection to a URL is encrypted; "" for not at all."""
    async with connected(url, tables=False) as db:
        ((_, name),) = await db.fetch("SHOW STATUS LIKE 'Ssl_cipher'")
        return name


async def refusal(url: str) -> Fault:
    """Why no connection to a URL is to be had."""
    with pytest.raises(Fault) as fault:
        await MySqlDriver(options_of(url, "shown"), "shown").connect()
    return fault.value


async def test_a_verified_server_is_spoken_to_in_cipher(ours: Authority) -> None:
    """With the authority that signed its certificate a server is known, and all is encrypted."""
    url = encrypting(ours).tcp_url("mysql")
    assert await cipher(url) == ""
    for query in (f"ssl-ca={ours}", f"ssl-mode=VERIFY_CA&ssl-ca={ours}", "ssl-mode=REQUIRED"):
        assert await cipher(f"{url}?{query}")


async def test_an_unknown_server_is_not_spoken_to(ours: Authority, others: Authority) -> None:
    """A certificate that another authority signed, or for another name, is refused for good."""
    url = encrypting(ours).tcp_url("mysql")
    for query in (f"ssl-ca={others}", f"ssl-mode=VERIFY_CA&ssl-ca={others}"):
        fault = await refusal(f"{url}?{query}")
        assert fault.trouble is Trouble.REFUSED
        assert "see ssl-ca, which signed its certificate" in fault.hint
        assert "certificate verify failed" in str(fault)
    named_otherwise = url.replace("127.0.0.1", "localhost")
    fault = await refusal(f"{named_otherwise}?ssl-ca={ours}")
    assert "Hostname mismatch" in str(fault)
    assert await cipher(f"{named_otherwise}?ssl-mode=VERIFY_CA&ssl-ca={ours}")


async def test_a_server_without_tls_is_not_spoken_to_plainly() -> None:
    """Who asks for TLS gets none of a server that has none, and sends it no password."""
    before = connections()
    fault = await refusal(f"{server().tcp_url('mysql')}?ssl-mode=REQUIRED")
    assert fault.trouble is Trouble.REFUSED
    assert "has no TLS" in fault.hint
    assert connections() == before


def connections() -> int:
    """How many connections of the test's user the plain server has let in so far."""
    status = dict(server().sql("SHOW GLOBAL STATUS LIKE 'Com_%'"))
    return int(status["Com_set_option"])  # the first thing that every connection of ours says
