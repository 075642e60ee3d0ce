"""`turnlog.sync`: the stores for synchronous code, in many threads, interrupted, closed, forked."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

import turnlog
from tests.store_urls import DURABLE, STORES, forget, url_of
from turnlog import sync
from turnlog.errors import NoSuchSession, ReentrantAppend, SessionInUse, StoreClosed, WriteFailed
from turnlog.models.scripted import ScriptedModel
from turnlog.stores import live
from turnlog.stores import store as async_store

interrupts = pytest.mark.skipif(sys.platform == "win32", reason="no signals for one thread")


@pytest.fixture(params=list(STORES))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Each kind of store, empty."""
    yield url_of(str(request.param), tmp_path)
    forget(tmp_path)


def texts(session: turnlog.Session) -> list[str]:
    """What the model sees, as text."""
    return [message.text for message in session.derive_messages()]


def said(event: turnlog.Event[object]) -> str:
    """The text of a message event."""
    assert event.message is not None
    return event.message.text


def test_posting_makes_a_session_only_if_asked_to(url: str) -> None:
    """In any kind of store; it is pending then, for a prompt or for more than that."""
    with turnlog.sync.open_store(url) as store:
        inbox = store.inbox("new")
        with pytest.raises(NoSuchSession):
            inbox.post(turnlog.Compact())
        inbox.post(turnlog.Compact(), create=True)
        assert (store.pending(), store.pending(only_prompts=False)) == ([], ["new"])
        inbox.post(turnlog.Prompt("hi"), create=True)
        assert store.pending() == ["new"]


def test_a_session_is_written_read_followed_and_talked_to(url: str) -> None:
    """All of the interface works with nothing to await."""
    with turnlog.sync.open_store(url) as store:
        with store.session("support-42") as session:
            session.add_user("hi")
            session.add_assistant("hello")
            session.flush()
            assert session.durable_seq == 2
            assert [said(event) for event in session.read_events(0, 100)] == ["hi", "hello"]
            assert [message.text for message in session.view(at=0)] == ["hi"]
            assert [message.text for message in session.transcript()] == ["hi", "hello"]
        assert [info.id for info in store.sessions()] == ["support-42"]
        assert texts(store.read("support-42")) == ["hi", "hello"]
        events = store.tail("support-42", after=-1)
        assert [said(next(events)), said(next(events))] == ["hi", "hello"]
        posted = store.inbox("support-42").post(turnlog.Prompt("more"))
        assert [queued.command.id for queued in store.inbox("support-42").waiting()] == [posted]
        assert store.pending() == ["support-42"]
        child = store.fork("support-42", at=0, new_id="child")
        assert texts(store.read(child)) == ["hi"]
        kept = turnlog.Session.create("made")
        kept.add_user("in memory")
        assert texts(store.read(store.save(kept))) == ["in memory"]


def test_it_is_the_session_itself(url: str) -> None:
    """Async work and synchronous code append to one log, under one lock, seen by one observer."""
    seen: list[int] = []

    async def work(session: turnlog.Session, text: str, *, more: str) -> int:
        session.add_user(text)
        session.add_user(more)
        return len(session)

    with sync.open_store(url) as store, store.session("a") as session:
        session.observe(lambda event: seen.append(event.seq))
        session.add_user("one")
        assert session.run(work, "two", more="three") == 3
        session.add_user("four")
        assert texts(session) == ["one", "two", "three", "four"]
        assert seen == [0, 1, 2, 3]


def test_an_agent_runs(url: str) -> None:
    """`session.run(agent.run, …)` is a turn, durable when it returns."""
    agent = turnlog.ReactLoopAgent(model=ScriptedModel(["It is sunny."]))
    with sync.open_store(url) as store, store.session("a") as session:
        result = session.run(agent.run, "What's the weather?", tool_choice="auto")
        assert result.text == "It is sunny."
        assert texts(store.read("a")) == ["What's the weather?", "It is sunny."]


def test_many_threads_at_once(url: str) -> None:
    """Threads that share a session, and threads with their own, lose and double nothing."""

    def write(name: int) -> None:
        with store.session(f"own-{name}") as own:
            for i in range(20):
                own.add_user(f"{name} {i}")
                shared.add_user(f"{name} {i}")
                if i % 5 == 0:
                    own.flush()
                    shared.flush()

    with sync.open_store(url) as store:
        with store.session("shared") as shared, ThreadPoolExecutor(8) as threads:
            list(threads.map(write, range(8)))
        read = store.read("shared")
        assert sorted(texts(read)) == sorted(f"{n} {i}" for n in range(8) for i in range(20))
        assert texts(read) == texts(shared)
        assert {info.id: info.events for info in store.sessions() if info.id != "shared"} == {
            f"own-{n}": 20 for n in range(8)
        }


def test_an_exception_in_the_block_still_flushes_and_releases(url: str) -> None:
    """What was appended is stored, the session is free, and the exception comes out."""

    def work(store: sync.Store) -> None:
        with store.session("a") as session:
            session.add_user("kept")
            _ = 1 // 0

    with sync.open_store(url) as store, sync.open_store(url) as other:
        with pytest.raises(ZeroDivisionError):
            work(store)
        with other.session("a") as session:
            assert texts(session) == ["kept"]


def test_an_exception_through_the_store_still_flushes(url: str) -> None:
    """An exception that leaves session and store at once loses nothing."""

    def work() -> None:
        with sync.open_store(url) as store, store.session("a") as session:
            session.add_user("kept")
            _ = 1 // 0

    with sync.open_store(url) as reader:
        with pytest.raises(ZeroDivisionError):
            work()
        assert texts(reader.read("a")) == ["kept"]


def interrupt() -> None:
    """Ctrl-C, as the main thread gets it."""
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGINT)


@interrupts
def test_an_interrupt_cancels_what_runs_and_waits_for_its_end(url: str) -> None:
    """Ctrl-C during `run` cancels the work, lets it close, then is raised; all is stored."""

    async def work(session: live.StoredSession) -> None:
        session.add_user("started")
        try:
            interrupt()
            await anyio.sleep_forever()
        finally:
            session.add_user("closed")

    def program() -> None:
        with sync.open_store(url) as store, store.session("a") as session:
            try:
                session.run(work)
            finally:
                assert texts(session) == ["started", "closed"]

    with sync.open_store(url) as reader:
        with pytest.raises(KeyboardInterrupt):
            program()
        assert texts(reader.read("a")) == ["started", "closed"]


@interrupts
def test_an_interrupt_while_leaving_is_raised_when_that_is_done(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C during the last flush does not cut it off."""
    flush = live.StoredSession.flush

    async def interrupted(session: live.StoredSession) -> None:
        interrupt()
        await anyio.lowlevel.checkpoint()
        await flush(session)

    with sync.open_store(url) as reader, sync.open_store(url) as store:
        held = store.session("a")
        held.__enter__().add_user("kept")
        monkeypatch.setattr(live.StoredSession, "flush", interrupted)
        with pytest.raises(KeyboardInterrupt):
            held.__exit__(None, None, None)
        monkeypatch.undo()
        assert texts(reader.read("a")) == ["kept"]
        with reader.session("a") as session:
            assert session.writable


@interrupts
def test_an_interrupt_ends_a_tail(url: str) -> None:
    """Ctrl-C while an event is waited for comes out of the loop, and the store closes."""

    async def soon(session: turnlog.Session) -> None:
        del session
        interrupt()

    def follow(store: sync.Store, session: sync.Session) -> None:
        events = store.tail("a")
        with ThreadPoolExecutor(1) as threads:
            threads.submit(session.run, soon)
            next(events)

    with sync.open_store(url) as store, store.session("a") as session:
        with pytest.raises(KeyboardInterrupt):
            follow(store, session)
        session.add_user("still here")
    with sync.open_store(url) as store:
        assert texts(store.read("a")) == ["still here"]


def test_closing_ends_what_other_threads_wait_for(url: str) -> None:
    """A thread that follows a session is told when the store is closed."""
    with ThreadPoolExecutor(1) as threads:
        with sync.open_store(url) as store:
            with store.session("a") as session:
                session.add_user("hi")
            events = store.tail("a", after=-1)
            next(events)
            waiting = threads.submit(next, events)
        with pytest.raises(StoreClosed, match="is not open"):
            waiting.result()


def test_closing_leaves_the_sessions_that_are_still_open(url: str) -> None:
    """A session that is still open when its store is closed is flushed and given back."""
    with ExitStack() as late, sync.open_store(url) as reader:
        with sync.open_store(url) as store:
            session = late.enter_context(store.session("a"))
            session.add_user("kept")
        with pytest.raises(StoreClosed):
            session.add_user("too late")
        with pytest.raises(StoreClosed):
            session.read_events()
        with reader.session("a") as again:
            assert texts(again) == ["kept"]


def test_a_store_is_used_while_it_is_open(url: str) -> None:
    """Before and after its `with`, and entered twice, a store says what is wrong."""
    store = sync.open_store(url)
    with pytest.raises(StoreClosed, match="use `with"):
        store.pending()
    with pytest.raises(StoreClosed), store.session("a"):
        pytest.fail("entered a session of a closed store")
    for _ in range(2):
        with store:
            assert store.pending() == []
            with pytest.raises(StoreClosed, match="already"), store:
                pytest.fail("entered twice")
            assert list(store.sessions()) == []
    with pytest.raises(StoreClosed):
        store.read("a")


def test_errors_come_out_as_they_are(url: str) -> None:
    """What the async store raises is what the call raises, and the store goes on."""
    with sync.open_store(url) as store, sync.open_store(url) as other:
        with pytest.raises(NoSuchSession):
            store.read("a")
        with pytest.raises(NoSuchSession):
            next(store.tail("a"))
        with store.session("a"), pytest.raises(SessionInUse), other.session("a"):
            pytest.fail("two writers")
        with pytest.raises(NoSuchSession), store.session("b", create=False):
            pytest.fail("entered a session that is not there")
        with other.session("a") as session:
            assert session.writable


def test_what_could_not_be_written_is_raised_on_leaving(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed last flush comes out of the `with`, and the session is given back."""

    async def fails(session: live.StoredSession) -> None:
        raise WriteFailed(session.id)

    with sync.open_store(url) as store:
        with pytest.raises(WriteFailed), store.session("a"):
            monkeypatch.setattr(live.StoredSession, "flush", fails)
        monkeypatch.undo()
        with store.session("a") as session:
            assert session.writable


def test_a_call_from_its_own_event_loop_is_refused(url: str) -> None:
    """What would wait for itself raises instead."""
    with sync.open_store(url) as store, store.session("a") as session:

        async def work(stored: turnlog.Session) -> None:
            stored.add_user("hi")
            session.flush()

        with pytest.raises(RuntimeError, match="its own event loop"):
            session.run(work)
        session.flush()
        assert texts(store.read("a")) == ["hi"]


async def test_it_works_inside_a_running_event_loop(url: str) -> None:
    """Called from a coroutine it blocks, and does what it does elsewhere."""
    with sync.open_store(url) as store:
        with store.session("a") as session:
            session.add_user("hi")
            session.flush()
        assert [said(event) for _, event in zip(range(1), store.tail("a", -1), strict=False)] == [
            "hi"
        ]
    async with turnlog.open_store(url) as again:
        assert texts(await again.read("a")) == ["hi"]


FORKED = """
import os, sys
from turnlog import errors, sync

with sync.open_store(sys.argv[1]) as store, store.session("a") as session:
    session.add_user("parent")
    child = os.fork()
    if child == 0:
        for call in (
            lambda: session.add_user("child"),
            session.flush,
            session.read_events,
            store.pending,
            lambda: next(store.sessions()),
            lambda: store.__exit__(None, None, None),
        ):
            try:
                call()
            except errors.ForkedProcess:
                continue
            os._exit(3)
        try:
            store.session("b").__enter__()
        except errors.ForkedProcess:
            os._exit(0)
        os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    session.add_user("still there")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("name", DURABLE)
def test_a_forked_process_is_told(name: str, tmp_path: Path) -> None:
    """In a child made by fork() each call raises ForkedProcess, and the parent is not hurt."""
    url = url_of(name, tmp_path)
    subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED, url], check=True
    )
    with sync.open_store(url) as store:
        assert texts(store.read("a")) == ["parent", "still there"]


def parameters(function: Callable[..., object]) -> list[tuple[str, object, object]]:
    """The names, kinds and defaults of what a function takes."""
    found = inspect.signature(function).parameters.values()
    return [(one.name, one.kind, one.default) for one in found]


PAIRS = [
    (async_store.Store, sync.Store),
    (async_store.Inbox, sync.Inbox),
    (live.StoredSession, sync.Session),
]


@pytest.mark.parametrize(("awaited", "face"), PAIRS)
def test_it_has_all_that_the_async_one_has(awaited: type, face: type) -> None:
    """Each public method is there, takes the same, and is not to be awaited."""
    for name, method in inspect.getmembers(awaited, inspect.isfunction):
        if name.startswith("_"):
            continue
        own = getattr(face, name, None)
        assert callable(own), f"turnlog.sync has no {face.__name__}.{name}"
        assert not inspect.iscoroutinefunction(own), f"{face.__name__}.{name} is to be awaited"
        assert not inspect.isasyncgenfunction(own), f"{face.__name__}.{name} is asynchronous"
        assert parameters(own) == parameters(method), f"{face.__name__}.{name}"


def test_an_observer_that_waits_for_its_session_is_refused(url: str) -> None:
    """What would wait for ever is an error: flushing, or reading the log, in an observer."""
    refused: list[type[Exception]] = []
    with turnlog.sync.open_store(url) as store, store.session("a") as session:

        def flush(_: turnlog.Event[object]) -> None:
            for wait in (session.flush, session.read_events):
                try:
                    wait()
                except turnlog.TurnlogError as error:
                    refused.append(type(error))

        stop = session.observe(flush)
        session.add_user("hello")
        stop()
        assert refused == [ReentrantAppend, ReentrantAppend]
        session.flush()
        assert len(session.read_events()) == 1
