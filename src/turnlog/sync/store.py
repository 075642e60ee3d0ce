"""The store for synchronous code: `turnlog.stores.store.Store`, with nothing to await."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Self

from turnlog import stores
from turnlog.commands import Command
from turnlog.errors import StoreClosed
from turnlog.events import AnyEvent, SessionHeader
from turnlog.session import Session as PlainSession
from turnlog.stores.adopting import Adopted, OnConflict
from turnlog.stores.copying import Copied, OnProgress, copy
from turnlog.stores.metrics import WriterMetrics
from turnlog.stores.port import Durability, Queued, SessionInfo
from turnlog.stores.resuming import Load
from turnlog.stores.searching import Hit
from turnlog.stores.store import Create
from turnlog.stores.store import Inbox as AsyncInbox
from turnlog.stores.store import Store as AsyncStore
from turnlog.sync.elsewhere import elsewhere
from turnlog.sync.loop import Loop
from turnlog.sync.session import Session


class Inbox:
    """The durable queue of commands of one session; any process may post."""

    def __init__(self, inbox: AsyncInbox, loop: Loop) -> None:
        self._inbox = inbox
        self._loop = loop

    def post(self, command: Command, *, create: bool = False) -> str:
        """Queue a command durably, once for its id; returns the id.

        Args:
            command: it gets an id if it has none.
            create: make the session if it does not exist.

        Raises:
            NoSuchSession: there is no such session.
        """
        return self._loop.call(partial(self._inbox.post, command, create=create))

    def waiting(self) -> list[Queued]:
        """The commands that nobody has accepted yet, in order of posting."""
        return self._loop.call(self._inbox.waiting)


class Store:
    """Sessions on one backend, for synchronous code; `turnlog.sync.open_store(url)` makes one.

    While it is open an event loop runs in a thread of its own, where all I/O is done. Every thread
    may use it, many at once. A call waits until it is done: inside a running event loop it works,
    and blocks that loop and all its tasks meanwhile. In a child that `fork()` made it raises
    `ForkedProcess`.

    Leaving the `with` flushes and gives back all sessions, whatever ended it. What other threads
    still wait for then ends with `StoreClosed`.
    """

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._loop = Loop(f"the store {store.url}")

    @property
    def url(self) -> str:
        """What `open_store` took."""
        return self._store.url

    @property
    def durability(self) -> Durability:
        """What a flush survives: see `Durability`."""
        return self._store.durability

    def __enter__(self) -> Self:
        if self._loop.is_open:
            raise StoreClosed(f"the store {self.url} is open already")
        self._loop.open(self._store)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.close()

    # -- writing -------------------------------------------------------------------------------

    @contextmanager
    def session(
        self,
        session_id: str | None = None,
        *,
        create: Create = True,
        steal: bool = False,
        load: Load = "surface",
        cwd: str | None = None,
    ) -> Generator[Session]:
        """Own a session: its one writer, repaired if it was interrupted.

        Leaving flushes, also when an exception or an interrupt ends the block, within a deadline,
        and gives the session back.

        Args:
            session_id: a new id when left out.
            create: make it if it does not exist (True), never (False), or only then ("only").
            steal: take it from a live owner, whose later writes are refused.
            load: "surface" holds what the model sees and what is new, of a log of 5,000 events and
                more of which the store has a record; "all" holds every event, as JSONL always does.
            cwd: for a new session, the folder the work is about.

        Raises:
            NoSuchSession, SessionExists: by `create`.
            SessionInUse: another live writer owns it; names the owner.
            WriteFailed, StaleWriter: on leaving, when what was appended is not durable.
        """
        opened = self._store.session(session_id, create=create, steal=steal, load=load, cwd=cwd)
        with self._loop.entered(opened) as stored:
            yield Session(stored, self._loop)

    def fork(self, session_id: str, *, at: int | None = None, new_id: str | None = None) -> str:
        """A durable child that shares the log up to and including event `at`; returns its id.

        The parent does not change and need not be free.

        Args:
            session_id: the parent.
            at: the last event that is shared; by default the last one there is.
            new_id: the child's id; a new one when left out.

        Raises:
            NoSuchSession, SessionExists, NoSuchEvent: as they say.
        """
        return self._loop.call(self._store.fork, session_id, at=at, new_id=new_id)

    def save(self, session: PlainSession) -> str:
        """Keep a session that was made in memory, with all its events; returns its id.

        From then on open it with `store.session(id)`; the one in memory is no part of the store.

        Raises:
            SessionExists: the id is taken.
        """
        return self._loop.call(self._store.save, session)

    def adopt(
        self,
        header: SessionHeader,
        events: Iterable[AnyEvent],
        *,
        on_conflict: OnConflict = "error",
    ) -> tuple[str, Adopted]:
        """Take a session that was made elsewhere; returns its id and what was done.

        See the async `Store.adopt`.

        Raises:
            ImportConflict: the id is taken by something else, and `on_conflict` is "error".
            SessionInUse: it would be extended, but another process owns it.
        """
        return self._loop.call(self._store.adopt, header, events, on_conflict=on_conflict)

    def copy_to(
        self,
        target: Store,
        ids: Iterable[str] | None = None,
        *,
        on_progress: OnProgress | None = None,
    ) -> list[Copied]:
        """Copy sessions to another open store; returns what became of each, parents first.

        A copy is exact, and may be interrupted at any moment and called again. See the async
        `Store.copy_to`.

        Args:
            target: where to; must not be in the middle of writing to these sessions itself.
            ids: which; all of them when left out.
            on_progress: called after each page and each session, in the event loop's thread.

        Raises:
            CopyFailed: some sessions could not be copied, all others were; `copied` says which, and
                why.
        """
        far = elsewhere(target._store.backend, target._loop)
        return self._loop.call(copy, self._store.backend, far, ids, on_progress=on_progress)

    # -- reading -------------------------------------------------------------------------------

    def read(self, session_id: str, *, load: Load = "surface") -> Session:
        """A reader: no lease, no repair, no lock. It shows what was durable when it was opened.

        Args:
            session_id: which.
            load: as for `session`.

        Raises:
            NoSuchSession: there is none.
        """
        return Session(self._loop.call(self._store.read, session_id, load=load), self._loop)

    def sessions(self) -> Iterator[SessionInfo]:
        """All sessions, the last active first; one bad session hides no other."""
        return self._loop.iterate(self._store.sessions())

    def search(
        self,
        text: str,
        *,
        session: str | None = None,
        include_tools: bool = False,
        include_context: bool = False,
        include_shadowed: bool = True,
        limit: int = 20,
        skip: int = 0,
    ) -> list[Hit]:
        """Messages that hold all the words of a text, best first: full-text search.

        See the async `Store.search` for what a text may ask for, and what is found.

        Args:
            text: what to look for.
            session: look in this one only.
            include_tools: also look in tool calls, their results, and reasoning.
            include_context: also in what no person typed.
            include_shadowed: also find messages that the model sees no longer.
            limit: the most hits to give, up to 1,000.
            skip: how many better hits to leave out.

        Raises:
            InvalidSearch: there is no word in the text, or there are too many.
            NoSuchSession: `session` does not exist.
        """
        return self._loop.call(
            self._store.search,
            text,
            session=session,
            include_tools=include_tools,
            include_context=include_context,
            include_shadowed=include_shadowed,
            limit=limit,
            skip=skip,
        )

    def tail(self, session_id: str, after: int | None = None) -> Iterator[AnyEvent]:
        """Events as they become durable, from whichever process; never ends by itself.

        The next event is waited for as long as it takes; closing the store from another thread, or
        an interrupt, ends it.

        Args:
            session_id: whose.
            after: the seq after which to begin; by default what is there now is left out, -1
                begins at the beginning.

        Raises:
            NoSuchSession: there is none.
            StoreClosed: the store was closed while an event was waited for.
        """
        return self._loop.iterate(self._store.tail(session_id, after))

    def inbox(self, session_id: str) -> Inbox:
        """The session's inbox, to which any process may post."""
        return Inbox(self._store.inbox(session_id), self._loop)

    def pending(self, *, only_prompts: bool = True, only_free: bool = False) -> list[str]:
        """The sessions whose inbox holds a prompt, the longest waiting first.

        Args:
            only_prompts: if not, also those with a decision, a cancel, or a compaction to do.
            only_free: without those that a live owner has, as far as the store can tell.
        """
        call = partial(self._store.pending, only_prompts=only_prompts, only_free=only_free)
        return self._loop.call(call)


def open_store(
    url: str,
    *,
    create: bool = True,
    durability: Durability = "turn",
    metrics: WriterMetrics | None = None,
) -> Store:
    """The store at `url`, to be used with `with`.

    Args:
        url: as for `turnlog.open_store`.
        create: as for `turnlog.open_store`.
        durability: as for `turnlog.open_store`.
        metrics: as for `turnlog.open_store`; most of it is told in the event loop's thread.

    Raises:
        InvalidStoreUrl: no such kind of store; the message lists them.
    """
    opened = stores.open_store(url, create=create, durability=durability, metrics=metrics)
    return Store(opened)
