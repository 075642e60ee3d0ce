"""A store that must be there already: opening it makes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from anyio import to_thread

from turnlog.errors import StoreError
from turnlog.stores.store import Store
from turnlog.stores.upkeep import Migratable

if TYPE_CHECKING:
    from pathlib import Path

    from turnlog.stores.metrics import WriterMetrics
    from turnlog.stores.port import SessionEventStore


class ExistingStore(Store):
    """As `Store`, but entering it fails where there is no store yet.

    Args:
        backend: of which kind.
        path: the file or folder that it is; None if it is a server's.
        metrics: as for `Store`.
    """

    def __init__(
        self,
        backend: SessionEventStore,
        path: Path | None = None,
        *,
        metrics: WriterMetrics | None = None,
    ) -> None:
        super().__init__(backend, metrics=metrics)
        self._path = path

    async def __aenter__(self) -> Self:
        """Open it.

        Raises:
            StoreError: it is not there, or cannot be opened.
        """
        if not await self._is_there():
            msg = f"no store at {self.url}: create=True makes it"
            raise StoreError(msg)
        return await super().__aenter__()

    async def _is_there(self) -> bool:
        if self._path is not None:
            return await to_thread.run_sync(_holds_something, self._path)
        backend = self.backend
        if isinstance(backend, Migratable):
            return (await backend.migrate(dry_run=True)).before > 0
        return True


def _holds_something(path: Path) -> bool:
    """Whether there is a folder, or a file that is not empty."""
    try:
        return path.is_dir() or path.stat().st_size > 0
    except FileNotFoundError:
        return False
    except OSError as error:
        msg = f"{path}: {error.strerror or error}"
        raise StoreError(msg) from error
