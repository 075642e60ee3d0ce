"""The JSONL store: one folder, in it a folder a session, in that segments of lines.

All I/O happens in worker threads. See the modules beside this one: `segments` for what the files
mean, `ownership` and `tenure` for writing, `scan` for reading, `listing` and `inbox`.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio import to_thread

from turnlog import jsontext
from turnlog.errors import (
    NoSuchSession,
    SessionExists,
    StaleWriter,
    StoreClosed,
    StoreError,
    TurnlogError,
    WriteFailed,
)
from turnlog.stores.jsonl.files import make_folder, publish, sync_folder, translated
from turnlog.stores.jsonl.frames import pack
from turnlog.stores.jsonl.inbox import Inboxes
from turnlog.stores.jsonl.listing import id_in, info_of, keep_info
from turnlog.stores.jsonl.names import lock_path, segment_of, segments_in
from turnlog.stores.jsonl.ownership import take
from turnlog.stores.jsonl.reader import Reader
from turnlog.stores.jsonl.segments import chain_of
from turnlog.stores.jsonl.tenure import Tenure
from turnlog.stores.locks import holding
from turnlog.stores.port import Batch, Claim, Durability, Owner, Queued, SessionInfo, Stored

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from turnlog.commands import Command
    from turnlog.events import AnyEvent, SessionHeader
    from turnlog.stores.jsonl.scan import Mark

T = TypeVar("T")

_THREADS = 8
_PATIENCE = 10.0
_POLL = 0.1  # seconds between looks at what other processes wrote
_POLL_OWN = 1.0  # when it is ours to write, and only a takeover could


class JsonlStore:
    """`jsonl:DIR`.

    Args:
        root: the store's folder; made, private to the user, when it is not there.
        durability: see `Durability`.
        compress: new sessions are written as zstd frames; old ones stay what they are.
    """

    def __init__(
        self, root: Path, *, durability: Durability = "turn", compress: bool = False
    ) -> None:
        self.url = f"jsonl:{root}"
        self.durability: Durability = durability
        self.keeps_records = False
        self._root = Path(root)
        self._packed = compress
        self._durable = durability != "none"
        self._inboxes = Inboxes(durable=self._durable)
        self._reader = Reader(self._root)
        self._tenures: set[Tenure] = set()
        self._grown: dict[str, anyio.Event] = {}
        self._threads: anyio.CapacityLimiter | None = None

    async def open(self) -> None:
        """Make the folder unless it is there."""
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._grown = {}
        await self._run(make_folder, self._root)

    async def close(self) -> None:
        """Give back what was claimed."""
        if self._threads is not None:
            with anyio.CancelScope(shield=True):
                for tenure in list(self._tenures):
                    await self._run(self._release, tenure)
        self._threads = None

    async def _run(self, call: Callable[..., T], *args: object) -> T:
        """Call it in a worker thread; a cancellation waits until it is done."""
        if self._threads is None:
            msg = f"the store {self.url} is closed"
            raise StoreClosed(msg)
        with translated(self.url):
            return await to_thread.run_sync(partial(call, *args), limiter=self._threads)

    # -- sessions ------------------------------------------------------------------------------

    async def create(self, header: SessionHeader) -> None:
        """Add an empty session, durably."""
        await self._run(self._create, header)

    def _create(self, header: SessionHeader) -> None:
        folder = self._reader.folder(header.id)
        make_folder(folder)
        with holding(lock_path(folder, 0), _PATIENCE, f"session {header.id!r}"):
            if segments_in(folder):
                msg = f"session {header.id!r} exists already in {self.url}"
                raise SessionExists(msg)
            line = jsontext.encode(header.to_dict()) + b"\n"
            first = segment_of(folder, 1, packed=self._packed)
            publish(first.path, pack(line) if self._packed else line, durable=self._durable)
            if self._durable:
                sync_folder(self._root)

    async def fork(self, header: SessionHeader, parent_id: str, boundary: int) -> bool:
        """Never by reference: a session's folder is whole by itself."""
        del header, parent_id, boundary
        return False

    async def info(self, session_id: str) -> SessionInfo:
        """One session's line."""
        return await self._run(self._info, session_id)

    def _info(self, session_id: str) -> SessionInfo:
        folder = self._existing(session_id)
        found = info_of(folder)
        if found is None:
            msg = f"no session {session_id!r} in {self.url}"
            raise NoSuchSession(msg)
        return found

    async def exists(self, session_id: str) -> bool:
        """Whether there is a session with that id."""
        return bool(await self._run(segments_in, self._reader.folder(session_id)))

    async def sessions(self) -> AsyncIterator[SessionInfo]:
        """All sessions, the last active first."""
        for info in await self._run(self._list):
            yield info

    def _list(self) -> list[SessionInfo]:
        found = [info for info in map(info_of, self._folders()) if info is not None]
        return sorted(found, key=lambda info: (-info.last_activity, info.id))

    def _folders(self) -> list[Path]:
        with os.scandir(self._root) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]

    # -- writing -------------------------------------------------------------------------------

    async def claim(self, session_id: str, owner: Owner, *, steal: bool = False) -> Claim:
        """Become the one writer; the handle is a `Tenure`."""
        got: list[Claim] = []
        with anyio.CancelScope(shield=True):  # else nobody would have what was claimed
            got.append(await self._run(partial(self._claim, steal=steal), session_id, owner))
        return got[0]

    def _claim(self, session_id: str, owner: Owner, *, steal: bool) -> Claim:
        folder = self._reader.folder(session_id)
        segment, lock = take(folder, session_id, owner, steal=steal, packed=self._packed)
        tenure = Tenure(folder, session_id, owner, segment, lock, durable=self._durable)
        self._tenures.add(tenure)
        self._reader.remember(session_id, None)  # what was read when others wrote
        return Claim(session_id, segment.token, tenure)

    async def release(self, claim: Claim) -> None:
        """Give it back, and keep what a listing will need."""
        if self._threads is not None:
            await self._run(self._release, claim.handle)

    def _release(self, tenure: Tenure) -> None:
        if tenure in self._tenures:
            self._tenures.discard(tenure)
            tenure.release()
            keep_info(tenure.folder)

    async def reseed(self, claim: Claim, header: SessionHeader) -> None:
        """Append the header: of several in a log the last one counts."""
        await self._run(self._reseed, claim, header)

    def _reseed(self, claim: Claim, header: SessionHeader) -> None:
        self._write(claim, lambda tenure, known: tenure.reseed(header, known))

    async def commit(self, batches: Sequence[Batch]) -> list[StoreError | None]:
        """Store each batch with one write and one fsync, side by side."""
        results: list[StoreError | None] = [None] * len(batches)

        async def commit_one(i: int) -> None:
            results[i] = await self._run(self._commit, batches[i])

        if len(batches) == 1:
            await commit_one(0)
        else:
            async with anyio.create_task_group() as tasks:
                for i in range(len(batches)):
                    tasks.start_soon(commit_one, i)
        for batch in batches:
            grown = self._grown.pop(batch.claim.session_id, None)
            if grown is not None:
                grown.set()
        return results

    def _commit(self, batch: Batch) -> StoreError | None:
        if not batch.events:
            return None  # it only has a record, which is not kept here
        try:
            self._write(batch.claim, lambda tenure, known: tenure.commit(batch, known))
        except StoreError as error:
            return error
        except TurnlogError as error:
            return StoreError(str(error))
        return None

    def _write(self, claim: Claim, write: Callable[[Tenure, Mark | None], None]) -> None:
        session_id = claim.session_id
        tenure = self._tenure_of(claim)
        try:
            write(tenure, self._reader.mark(session_id))
        except OSError as error:
            msg = f"session {session_id!r}: {error.strerror or error}"
            raise WriteFailed(msg) from error
        self._reader.remember(session_id, tenure.mark)

    def _tenure_of(self, claim: Claim) -> Tenure:
        tenure = claim.handle
        if tenure not in self._tenures:
            msg = f"session {claim.session_id!r}: the claim was given back"
            raise StaleWriter(msg)
        return tenure

    # -- reading -------------------------------------------------------------------------------

    async def load(self, session_id: str) -> Stored:
        """The whole session."""
        found = await self._run(self._reader.scan, session_id)
        return Stored(found.mark.header, found.events, found.damage, found.torn)

    async def next_seq(self, session_id: str) -> int:
        """The seq that the next event will have."""
        return await self._run(self._reader.next_seq, session_id)

    async def read(
        self, session_id: str, start: int, stop: int | None = None, *, chunks: bool = True
    ) -> list[AnyEvent]:
        """The events with `start <= seq < stop`."""
        found = await self._run(self._reader.read, session_id, start, stop)
        return found if chunks else [e for e in found if e.type != "assistant/chunk"]

    async def read_seqs(self, session_id: str, seqs: Sequence[int]) -> list[AnyEvent]:
        """The events with these seqs."""
        wanted = frozenset(seqs)
        events = await self.read(session_id, min(wanted, default=0))
        return [event for event in events if event.seq in wanted]

    async def record(self, session_id: str) -> None:
        """None: lines are read from the first on."""
        await self._run(self._existing, session_id)

    async def header(self, session_id: str) -> SessionHeader:
        """What was written before the first event."""
        return await self._run(self._reader.header, session_id)

    async def wait(self, session_id: str, after: int, timeout: float) -> None:  # noqa: ASYNC109 - the port's
        """Return when there is more: at once for what is written here, else by looking."""
        with anyio.move_on_after(timeout) as scope:
            while True:
                grown = self._grown.setdefault(session_id, anyio.Event())
                with anyio.CancelScope(shield=True):
                    if await self._run(self._reader.next_seq, session_id) > after + 1:
                        return
                if anyio.current_time() >= scope.deadline:
                    return
                ours = any(tenure.session_id == session_id for tenure in self._tenures)
                with anyio.move_on_after(_POLL_OWN if ours else _POLL):
                    await grown.wait()

    # -- the inbox -----------------------------------------------------------------------------

    async def post(self, session_id: str, command: Command) -> bool:
        """Queue a command durably; False when its id was posted before."""
        return await self._run(self._post, session_id, command)

    def _post(self, session_id: str, command: Command) -> bool:
        return self._inboxes.post(self._existing(session_id), command)

    async def inbox(self, session_id: str) -> list[Queued]:
        """The commands that wait."""
        return await self._run(self._inbox, session_id)

    def _inbox(self, session_id: str) -> list[Queued]:
        return list(self._inboxes.waiting(self._existing(session_id)).queued)

    async def accept(self, claim: Claim, positions: Sequence[int]) -> None:
        """Take commands out of the inbox."""
        await self._run(self._inboxes.accept, self._reader.folder(claim.session_id), positions)

    def _existing(self, session_id: str) -> Path:
        folder = self._reader.folder(session_id)
        if not segments_in(folder):
            chain_of(folder, session_id)  # says that there is none
        return folder

    async def pending(self, *, only_prompts: bool = True, only_free: bool = False) -> list[str]:
        """Sessions whose inbox holds a prompt, or anything to do, the longest waiting first.

        Those that someone owns are among them: who looked whether a lock is free would hold it.
        """
        del only_free
        return await self._run(self._pending, only_prompts)

    def _pending(self, only_prompts: bool) -> list[str]:  # noqa: FBT001 - called in a thread
        waiting: list[tuple[int, str]] = []
        for folder in self._folders():
            try:
                waits = self._inboxes.waiting(folder)
            except OSError:
                continue  # one bad inbox hides no other; `inbox` and `post` say what is wrong
            since = waits.prompt_since if only_prompts else waits.since
            if since is not None:
                waiting.append((since, id_in(folder)))
        return [session_id for _, session_id in sorted(waiting)]
