"""The claims of one handle, and the rows of their sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from turnlog.errors import NoSuchSession, StaleWriter
from turnlog.stores.owners import taken_over
from turnlog.stores.server.leases import owner_in
from turnlog.stores.sql.runs import Attempt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnlog.events import SessionHeader
    from turnlog.stores.port import Claim
    from turnlog.stores.server.dialect import Dialect
    from turnlog.stores.server.driver import Connection

_HELD = """
    SELECT session, token, next_seq, owner, sum, last_activity, stale, info FROM sessions WHERE
"""


class Held(NamedTuple):
    """A session's row, as a commit finds it, or leaves it."""

    key: bytes
    token: int
    next_seq: int
    owner: bytes | None
    sum: int
    last_activity: int
    stale: int
    info: bytes | None


class Tenure:
    """One claim of this handle's.

    Attributes:
        key: the session's.
        root: of its family.
        attempt: the chunks of the attempt that is running.
        left: the session's row as the last commit left it: while the token is its, nobody else
            changes what a commit looks at. None where that is not known.
        unsettled: the last commit failed, and it is not known whether it was done all the same.
        header: the session's, with its sum, once it was needed.
    """

    __slots__ = ("attempt", "header", "key", "left", "root", "session_id", "token", "unsettled")

    def __init__(self, key: bytes, root: bytes, session_id: str, token: int) -> None:
        self.key = key
        self.root = root
        self.session_id = session_id
        self.token = token
        self.attempt = Attempt()
        self.left: Held | None = None
        self.unsettled = False
        self.header: tuple[int, SessionHeader] | None = None


class Tenures(set[Tenure]):
    """The claims that a handle has.

    Args:
        dialect: the database's.
        url: for messages.
    """

    def __init__(self, dialect: Dialect, url: str) -> None:
        super().__init__()
        self._dialect = dialect
        self._url = url

    def of(self, claim: Claim) -> Tenure:
        """That of a claim.

        Raises:
            StaleWriter: it was given back.
        """
        tenure: Tenure = claim.handle
        if tenure not in self:
            msg = f"session {claim.session_id!r}: the claim was given back"
            raise StaleWriter(msg)
        return tenure

    async def lock(self, db: Connection, tenures: Sequence[Tenure]) -> dict[bytes, Held]:
        """The rows of sessions, locked in the order of their keys, as everyone does."""
        keys = sorted({tenure.key for tenure in tenures})
        condition, values = self._dialect.among("session", "key", keys)
        query = f"{_HELD}{condition} ORDER BY session FOR UPDATE"
        return {row[0]: Held(*row) for row in await db.fetch(query, *values)}

    def check(self, held: dict[bytes, Held], tenure: Tenure) -> Held:
        """The session's row, as long as the claim holds.

        Raises:
            StaleWriter: it does not.
        """
        row = held.get(tenure.key)
        if row is None:
            msg = f"no session {tenure.session_id!r} in {self._url}"
            raise NoSuchSession(msg)
        if row.token != tenure.token:
            raise taken_over(tenure.session_id, owner_in(row.owner))
        return row
