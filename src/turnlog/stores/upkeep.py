"""What an operator asks of a store: is all well with it, and is its schema the newest one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, runtime_checkable


class Diagnosed(NamedTuple):
    """One thing that was looked at, and what to do about it where it is not well."""

    name: str
    state: Literal["ok", "warning", "failed"]
    detail: str


@runtime_checkable
class Diagnosable(Protocol):
    """A backend that can say more of itself than that it answers."""

    async def diagnose(self) -> list[Diagnosed]:
        """What there is to say; the store is open.

        Raises:
            StoreError: it does not answer.
        """
        ...


@runtime_checkable
class Inspectable(Protocol):
    """A backend whose file can be looked through for damage that nobody has met yet."""

    async def inspect(self, *, most: int | None = None) -> list[str] | None:
        """What is wrong with the file, a line each; the store is open.

        It is the file's structure that is looked at. What events hold `verify` reads.

        Args:
            most: bytes that the file may have.

        Returns:
            Nothing if all is well; None if the file has more bytes and was not looked at.

        Raises:
            StoreError: it cannot be read at all.
        """
        ...


class Migration(NamedTuple):
    """What brings a store's schema from one version to another; nothing, when they are the same."""

    before: int
    after: int
    statements: Sequence[str]


@runtime_checkable
class Migratable(Protocol):
    """A backend with a schema. To open it migrates it, too, where that is allowed."""

    async def migrate(self, *, dry_run: bool = False) -> Migration:
        """Bring the schema to the newest version; the store is not open.

        Args:
            dry_run: change nothing, only say what would be done.

        Raises:
            UnsupportedVersion: it is newer than this turnlog.
            StoreError: it cannot be done, and why.
        """
        ...
