"""URLs of database servers: as they may be shown, and whether they can be read.

Passwords stay with who gave them. Whatever may be a piece of one is not shown, also of a URL that
cannot be read as it is because a password holds what has a meaning in a URL.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

from turnlog.errors import InvalidStoreUrl

_SECRET = "***"  # noqa: S105 - what is shown in its place
_FILES = ("jsonl:", "memory:", "sqlite:")
_BEFORE = re.compile(r"[^:/?#@]*:/+|(?:postgres|postgresql|mysql|mariadb):")  # a user's name
_NAMED = re.compile(r"[^:]*:(.*)(?=@)", re.DOTALL)
_NO_PORT = re.compile(r"(?:\[[^]]*\]|[^][:/?#@]*):(?!\d*(?:[,/?#]|\Z))(.*)", re.DOTALL)
# With what follows an & and has no name: most likely the & is the password's.
_OPTION = re.compile(
    r"(?i)[?&][^=&]*(?:password|passwd|pwd|secret|scram)[^=&]*=([^&]*(?:&[^=&]*(?![^&]))*)"
)
_URL = re.compile(r"[^\s'\"]+:/[^\s'\"]*[^\s'\":;,.)]")
_HOST = re.compile(r"(?:\[[^]]*\]|[^][:]*)(?::(?P<port>\d*))?")

_PORTS = 1 << 16
_ESCAPED = (
    "in a user name or password : is written %3A, / %2F, ? %3F, # %23, @ %40, % %25, and in an "
    "option & is written %26"
)


def shown(url: str) -> str:
    """The URL with `***` in the place of each password, and of whatever may be one."""
    if url.startswith(_FILES):
        return url
    before = _BEFORE.match(url)
    start = before.end() if before else 0
    found = [_NAMED.match(url, start), *_OPTION.finditer(url)]
    if before and not found[0]:
        found.append(_NO_PORT.match(url, start))
    said, end = "", 0
    for first, last in sorted(match.span(1) for match in found if match):
        if first >= end:
            said += url[end:first] + _SECRET
        end = max(end, last)
    return said + url[end:]


def masked(text: str) -> str:
    """A text that may have URLs in it, each of them as it may be shown."""
    return _URL.sub(lambda url: shown(url[0]), text)


def is_port(said: str) -> bool:
    """Whether it is the number of a port."""
    return said.isascii() and said.isdecimal() and 0 < int(said[:6]) < _PORTS


def _is_host(said: str) -> bool:
    found = _HOST.fullmatch(said)
    return found is not None and (not found["port"] or is_port(found["port"]))


def unreadable(url: str) -> InvalidStoreUrl:
    """The error of a URL that is none of a server's, most likely as a password is not escaped."""
    expected = f"{url.partition(':')[0]}://USER@HOST:PORT/DATABASE"
    return InvalidStoreUrl(f"{shown(url)}: expected {expected}; {_ESCAPED}")


def options_of_url(url: str) -> dict[str, str]:
    """What follows the `?`, where what precedes it can be a server's place.

    A `+` is itself, as for the servers' own programs, and no space.

    Raises:
        InvalidStoreUrl: it cannot be meant so; most likely a password is not escaped.
    """
    place, _, query = url.partition("?")
    authority, _, path = place.partition("://")[2].partition("/")
    hosts = authority.rpartition("@")[2].split(",")
    if "#" in url or "@" in path or not all(map(_is_host, hosts)):
        raise unreadable(url)
    if not query:
        return {}
    try:
        found = parse_qsl(query.replace("+", "%2B"), keep_blank_values=True, strict_parsing=True)
    except ValueError:  # which quotes what it cannot read
        msg = f"{shown(url)}: expected options as in ?name=value&name=value; {_ESCAPED}"
        raise InvalidStoreUrl(msg) from None
    return dict(found)
