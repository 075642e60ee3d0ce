"""Who may write to a session: a token in its row, and a lock that the owner's handle holds.

Each handle that claims a session holds the lock of one file in the folder `FILE-owners`, which the
system frees when its process is gone, however it went. A session's row names the handle of its last
claim. Whoever claims takes the next token, and every write compares it inside its transaction.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from turnlog import jsontext
from turnlog.errors import StaleWriter, StoreError
from turnlog.stores.files import opened
from turnlog.stores.locks import Lock, is_locked, try_lock, unlock
from turnlog.stores.owners import in_use
from turnlog.stores.owners import taken_over as _taken_over
from turnlog.stores.port import Owner

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from turnlog.stores.sqlite.driver import Connection


_TRIES = 100
_SUFFIX = ".lock"


class Handles:
    """The locks of the handles on one file: this handle's own, and whether another's is held.

    Args:
        folder: `FILE-owners`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock: Lock | None = None

    def own(self, owner: Owner) -> str:
        """The name of this handle, whose lock is held from the first call on.

        Raises:
            OSError: the folder cannot be written.
        """
        if self._lock is None:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._sweep()
            for _ in range(_TRIES):
                lock = Lock.acquire(self._folder / (secrets.token_hex(8) + _SUFFIX), owner)
                if lock is not None and _is_there(lock):
                    self._lock = lock
                    break
                if lock is not None:
                    lock.release()
            else:
                msg = f"no lock was to be had in {self._folder.name}"
                raise StoreError(msg)
        return self._lock.path.name.removesuffix(_SUFFIX)

    def is_own(self, held: bytes | None) -> bool:
        """Whether `sessions.owner` names this handle."""
        known = _read(held)
        if known is None or self._lock is None:
            return False
        return known[0] == self._lock.path.name.removesuffix(_SUFFIX)

    def lives(self, name: str) -> bool:
        """Whether the handle of that name is still open."""
        if not name.isalnum():
            return False  # none that we gave
        try:
            with opened(self._folder / (name + _SUFFIX), os.O_RDWR) as fd:
                return is_locked(fd)
        except FileNotFoundError:
            return False

    def living(self, owners: Iterable[bytes | None]) -> set[bytes]:
        """Those among values of `sessions.owner` that name a handle which is still open."""
        found: dict[str, bool] = {}
        living: set[bytes] = set()
        for held in set(owners):
            known = _read(held)
            if held is None or known is None:
                continue
            name = known[0]
            if name not in found:
                found[name] = self.lives(name)
            if found[name]:
                living.add(held)
        return living

    def _sweep(self) -> None:
        """Remove the files of handles that are gone."""
        for path in self._folder.glob(f"*{_SUFFIX}"):
            with suppress(OSError), opened(path, os.O_RDWR) as fd:
                if try_lock(fd):
                    path.unlink(missing_ok=True)
                    unlock(fd)

    def release(self) -> None:
        """End this handle. Idempotent."""
        lock, self._lock = self._lock, None
        if lock is not None:
            if lock.held:
                lock.path.unlink(missing_ok=True)
            lock.release()


def _is_there(lock: Lock) -> bool:
    """Whether nobody removed the lock's file before it was locked."""
    try:
        return os.path.samestat(os.fstat(lock.fd), lock.path.stat())
    except FileNotFoundError:
        return False


# -- in a transaction --------------------------------------------------------------------------


class _Owned(msgspec.Struct):
    """What `sessions.owner` holds."""

    handle: str
    owner: dict[str, Any]


def take(
    db: Connection,
    no: int,
    session_id: str,
    held: bytes | None,
    handles: Handles,
    owner: Owner,
    *,
    steal: bool,
) -> int:
    """Make this handle the owner of a session; returns the token.

    Args:
        db: in a transaction.
        no: the session's number.
        session_id: for messages.
        held: what `sessions.owner` holds.
        handles: among them is this one.
        owner: who asks.
        steal: take it from a live owner.

    Raises:
        SessionInUse: another live handle has it.
    """
    known = _read(held)
    if known is not None and not steal and handles.lives(known[0]):
        raise in_use(session_id, known[1])
    (token,) = db.execute("SELECT token + 1 FROM sessions WHERE no = ?", (no,)).fetchone()
    named = msgspec.structs.replace(owner, token=token)
    mine = {"handle": handles.own(owner), "owner": msgspec.to_builtins(named)}
    db.execute(
        "UPDATE sessions SET token = ?, owner = ? WHERE no = ?", (token, jsontext.encode(mine), no)
    )
    return token


def give_back(db: Connection, no: int, token: int) -> None:
    """Make a session free, if the token still is the last one."""
    db.execute("UPDATE sessions SET owner = NULL WHERE no = ? AND token = ?", (no, token))


def taken_over(session_id: str, held: bytes | None) -> StaleWriter:
    """The refusal that names who owns the session now."""
    known = _read(held)
    return _taken_over(session_id, None if known is None else known[1])


def _read(held: bytes | None) -> tuple[str, Owner | None] | None:
    """Handle and owner as `sessions.owner` holds them; None where there is none, or nonsense."""
    if held is None:
        return None
    try:
        owned = msgspec.convert(jsontext.decode(held), _Owned)
    except ValueError:
        return None
    try:
        return owned.handle, msgspec.convert(owned.owner, Owner)
    except ValueError:
        return owned.handle, None
