"""What `chat` and `tail` do while their store is away: a backend that fails at the port."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import anyio
import pytest

from tests.away import AwayStore
from tests.unit.agent.scenes import agent
from turnlog.cli import chatting, following
from turnlog.cli.agents import AGENT_DEFAULTS
from turnlog.cli.options import DEFAULTS
from turnlog.cli.terminal import Lines
from turnlog.cli.turns import Talk
from turnlog.commands import Prompt
from turnlog.errors import NoSuchSession, StoreError
from turnlog.events import AnyEvent
from turnlog.stores.memory import MemoryStorage
from turnlog.stores.store import Store


class Away(AwayStore):
    """A store that fails so many times.

    Attributes:
        failures: how often it still does.
    """

    failures = 0

    def fail(self, kind: type[StoreError]) -> StoreError | None:
        """The error that is due, if one is."""
        if not self.failures:
            return None
        self.failures -= 1
        return kind("no server there")

    async def read(
        self, session_id: str, start: int, stop: int | None = None, *, chunks: bool = True
    ) -> list[AnyEvent]:
        """Events, unless it is away."""
        if (error := self.fail(StoreError)) is not None:
            raise error
        return await super().read(session_id, start, stop, chunks=chunks)


class Typed(Lines):
    """A person who types lines one after the other, and sees the store go away before one.

    Args:
        backend: the store.
        lines: what is typed; a number is how often the store fails from then on.
    """

    def __init__(self, backend: Away, *lines: str | int) -> None:
        super().__init__()
        self._backend = backend
        self._typed = list(lines)

    async def ask(self, question: str, *, discard: bool = False) -> str | None:
        """The next one; None after the last."""
        del question, discard
        await anyio.lowlevel.checkpoint()
        while self._typed:
            line = self._typed.pop(0)
            if isinstance(line, str):
                return line
            self._backend.failures = line
        return None


@pytest.fixture
async def backend() -> Away:
    """A store that is there, as yet."""
    return Away(MemoryStorage())


@pytest.fixture
async def store(backend: Away) -> AsyncGenerator[Store]:
    """It, open."""
    async with Store(backend) as opened:
        yield opened


def texts(events: Sequence[AnyEvent]) -> list[str]:
    """What was said."""
    return [event.message.text for event in events if event.message is not None]


async def converse(
    store: Store, backend: Away, *lines: str | int, patient: bool, answers: Sequence[str]
) -> list[str]:
    """Type lines in a chat; what its session says in the end."""
    async with store.session("s") as session:
        talk = Talk(store, session, agent(*answers), json=False, said=0, patient=patient)
        typed = Typed(backend, *lines)
        await chatting.converse(talk, session, typed, AGENT_DEFAULTS, DEFAULTS)
    return texts((await store.read("s")).events)


async def test_a_conversation_waits_for_its_store(
    store: Store, backend: Away, capsys: pytest.CaptureFixture[str]
) -> None:
    """The prompt is answered once the store is back; that it is away is said once."""
    said = await converse(store, backend, "one", 4, "two", patient=True, answers=["1", "2"])
    assert said == ["one", "1", "two", "2"]
    shown = capsys.readouterr()
    assert shown.out == "1\n2\n"
    assert shown.err == "turnlog: no server there (it is tried again; Ctrl-C gives up)\n"


async def test_without_a_terminal_it_ends_with_its_store(store: Store, backend: Away) -> None:
    """Nobody is there to give up, and later lines may rest on what the first one does."""
    with pytest.raises(StoreError, match="no server there"):
        await converse(store, backend, "one", 2, "two", patient=False, answers=["1", "2"])
    assert texts((await store.read("s")).events) == ["one", "1"]


async def test_an_inbox_that_cannot_be_asked_is_empty_for_now(
    store: Store, backend: Away, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which is said once each time that the store goes away."""
    async with store.session("s") as session:
        inbox = chatting.Inbox(session)
        await store.inbox("s").post(Prompt("hi"))
        backend.failures = 2
        assert [await inbox.has_work() for _ in range(4)] == [False, False, True, False]
        backend.failures = 1
        assert await inbox.has_work() is False
    assert capsys.readouterr().err == "turnlog: no server there (it is looked at again)\n" * 2


async def test_following_goes_on_when_the_store_is_back(
    store: Store, backend: Away, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event comes once, whatever failed between; that it did is said once."""
    monkeypatch.setattr(following, "AGAIN", 0.0)
    seen: list[AnyEvent] = []
    async with store.session("s") as session:
        for number in range(3):
            session.add_user(f"message {number}")
        await session.flush()
        async for event in following.followed(store, "s", -1):
            seen.append(event)
            if event.seq == 2:
                session.add_user("more")
                await session.flush()
                backend.failures = 4
            if event.seq == 3:
                break
    assert [event.seq for event in seen] == [0, 1, 2, 3]
    assert capsys.readouterr().err == "turnlog: no server there (it is tried again until Ctrl-C)\n"


async def test_following_what_is_not_there_fails(store: Store) -> None:
    """That does not pass."""
    with pytest.raises(NoSuchSession):
        async for _ in following.followed(store, "s", -1):
            pass
