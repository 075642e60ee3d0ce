"""Any backend against the memory store: random operations give equal answers and equal sessions."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Collection
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import anyio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from turnlog import jsontext
from turnlog.commands import Cancel, Command, Prompt, Steer
from turnlog.errors import StoreError, brief
from turnlog.events import AnyEvent, Replace
from turnlog.log import make_event
from turnlog.stores.memory import MemoryStorage, MemoryStore
from turnlog.stores.port import Batch, Claim, Owner, SessionEventStore, Stored
from turnlog.testing.conformance.base import Factory, StoreSuite
from turnlog.testing.conformance.samples import NOON, canonical, header

Operation: TypeAlias = tuple[Any, ...]
"""A method of `Player` and its arguments."""

# -- what may happen ---------------------------------------------------------------------------

_handles = st.integers(0, 1)
_IDS = ["a", "A", "\x00/é\ud800"]
_ids = st.sampled_from(["a", "a", "A", "\x00/é\ud800"])
_text = st.text(st.characters(), max_size=8)
_numbers = st.integers(jsontext.INT_MIN, jsontext.INT_MAX) | st.floats(
    allow_nan=False, allow_infinity=False
)
_json = st.recursive(
    st.none() | st.booleans() | _numbers | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=6,
)
_times = st.integers(NOON - 5, NOON + 5)
_envelopes = st.fixed_dictionaries(
    {"ignorable": st.booleans(), "extra": st.none() | st.just({"x\u2028": [1.0, None]})}
)
_notes = st.tuples(st.just("acme/noted"), _json, _times, _envelopes, st.none(), st.none())
_chunks = st.tuples(
    st.just("assistant/chunk"),
    _text.map(
        lambda text: {
            "turn": 1,
            "step": 1,
            "chunk": {"type": "text-delta", "index": 0, "text": text},
        }
    ),
    _times,
    st.just({}),
    st.none(),
    st.none(),
)
_shown = st.tuples(
    st.just("acme/shown"),
    _json,
    _times,
    _envelopes,
    st.sampled_from(["append", Replace(0, 0), Replace(2, 1)]),
    st.none() | st.lists(st.integers(0, 9), max_size=5),
)
_events = st.lists(_notes | _chunks | _chunks | _shown, min_size=1, max_size=6)
_commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(Prompt, _text, id=st.sampled_from("xyz")),
    st.builds(Steer, _text, id=st.sampled_from("xyz")),
    st.builds(Cancel, id=st.sampled_from("xyz")),
)
_offsets = st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1])

_operations: st.SearchStrategy[Operation] = st.one_of(
    st.tuples(st.just("create"), _handles, _ids, _text),
    st.tuples(st.just("claim"), _handles, _ids, st.booleans()),
    st.tuples(st.just("commit"), _handles, _ids, _events, _offsets),
    st.tuples(st.just("commit"), _handles, _ids, _events, _offsets),
    st.tuples(st.just("commit_all"), _handles, _events, _offsets),
    st.tuples(st.just("release"), _handles, _ids),
    st.tuples(st.just("reopen"), _handles),
    st.tuples(st.just("read"), _handles, _ids, st.integers(-1, 9), st.none() | st.integers(-1, 9)),
    st.tuples(st.just("look"), _handles, _ids),
    st.tuples(st.just("post"), _handles, _ids, _commands),
    st.tuples(st.just("accept"), _handles, _ids, st.integers(0, 2)),
)
_BEGINNING: list[Operation] = [
    *[("create", 0, session_id, "") for session_id in _IDS[:2]],
    *[("claim", i, session_id, False) for i, session_id in enumerate(_IDS[:2])],
]
scripts = st.lists(_operations, min_size=10, max_size=40).map(lambda more: _BEGINNING + more)
"""Sequences of operations on two handles of one storage: at first each owns a session."""


# -- doing it ----------------------------------------------------------------------------------


class Player:
    """Plays operations on two handles of one storage and tells each answer in plain values."""

    def __init__(self, factory: Factory) -> None:
        self._factory = factory
        self._handles: list[SessionEventStore] = []
        self._claims: dict[tuple[int, str], Claim] = {}

    async def play(self, script: list[Operation]) -> list[Any]:
        """The answers to all operations, then all that is stored."""
        self._handles = [self._factory(), self._factory()]
        for handle in self._handles:
            await handle.open()
        try:
            answers = [await _told(getattr(self, name)(*args)) for name, *args in script]
            return [*answers, await self._everything()]
        finally:
            for handle in self._handles:
                await handle.close()

    async def create(self, handle: int, session_id: str, text: str) -> None:
        """Create a session whose header holds a text."""
        made = header(session_id, cwd=text, extra={"text": text})
        await self._handles[handle].create(made)

    async def claim(self, handle: int, session_id: str, steal: bool) -> None:  # noqa: FBT001
        """Claim a session unless this handle has it."""
        if (handle, session_id) not in self._claims:
            owner = Owner(handle + 1, "test.example", NOON)
            claim = await self._handles[handle].claim(session_id, owner, steal=steal)
            self._claims[handle, session_id] = claim

    async def commit(self, handle: int, session_id: str, events: list[Any], offset: int) -> Any:
        """Commit events at the end of a session, or beside it."""
        claim = self._claims.get((handle, session_id))
        if claim is not None:
            return await self._commit(handle, [claim], events, offset)
        return None

    async def commit_all(self, handle: int, events: list[Any], offset: int) -> Any:
        """Commit events to every session that this handle claimed, the first one beside its end."""
        claims = [claim for (owner, _), claim in self._claims.items() if owner == handle]
        return await self._commit(handle, claims, events, offset) if claims else None

    async def _commit(
        self, handle: int, claims: list[Claim], events: list[Any], offset: int
    ) -> list[str]:
        batches: list[Batch] = []
        for claim in claims:
            start = await self._handles[handle].next_seq(claim.session_id) + offset
            offset = 0
            numbered = enumerate(events, max(start, 0))
            batches.append(Batch(claim, [_made(seq, *parts) for seq, parts in numbered]))
        results = await self._handles[handle].commit(batches)
        return [type(result).__name__ for result in results]

    async def release(self, handle: int, session_id: str) -> None:
        """Release a session if this handle claimed it."""
        claim = self._claims.pop((handle, session_id), None)
        if claim is not None:
            await self._handles[handle].release(claim)

    async def reopen(self, handle: int) -> None:
        """Close a handle and open a new one."""
        await self._handles[handle].close()
        self._handles[handle] = self._factory()
        await self._handles[handle].open()
        self._claims = {key: claim for key, claim in self._claims.items() if key[0] != handle}

    async def read(self, handle: int, session_id: str, start: int, stop: int | None) -> Any:
        """Read a range."""
        events = await self._handles[handle].read(session_id, start, stop)
        return [_plain(event) for event in events]

    async def look(self, handle: int, session_id: str) -> Any:
        """Load a session."""
        return _loaded(await self._handles[handle].load(session_id))

    async def post(self, handle: int, session_id: str, command: Command) -> bool:
        """Post a command."""
        return await self._handles[handle].post(session_id, command)

    async def accept(self, handle: int, session_id: str, index: int) -> None:
        """Accept a command if this handle claimed the session and there are that many."""
        claim = self._claims.get((handle, session_id))
        queued = await self._handles[handle].inbox(session_id)
        if claim is not None and index < len(queued):
            await self._handles[handle].accept(claim, [queued[index].position])

    async def _everything(self) -> Any:
        store = self._handles[0]
        infos = [info async for info in store.sessions()]
        listed = [(i.id, i.title, i.events, i.messages, i.last_activity, i.health) for i in infos]
        activity = [info.last_activity for info in infos]
        assert activity == sorted(activity, reverse=True)
        held: dict[str, Any] = {}
        for info in infos:
            waiting = [queued.command for queued in await store.inbox(info.id)]
            next_seq = await store.next_seq(info.id)
            held[info.id] = (_loaded(await store.load(info.id)), waiting, next_seq)
        return sorted(listed), held, await store.pending()


def _made(
    seq: int, name: str, data: Any, time: int, rest: dict[str, Any], op: Any, cited: Any
) -> AnyEvent:
    if cited is not None:  # what no log holds no store need keep: only earlier seqs, each once
        cited = list(dict.fromkeys(one for one in cited if one < seq))
    return make_event(name, seq, time, jsontext.encode(data), op, cited, **rest)


async def _told(doing: Awaitable[Any]) -> Any:
    try:
        return await doing
    except StoreError as error:
        return type(error).__name__


def _loaded(stored: Stored) -> Any:
    assert list(stored.damage) == [], list(stored.damage)
    events = [_plain(event) for event in stored.events]
    return canonical(stored.header.to_dict()), events


def _plain(event: Any) -> Any:
    cited = event.source_event_seqs
    return (
        event.type,
        event.seq,
        event.time,
        bytes(event.raw),
        event.surface_op,
        None if cited is None else tuple(cited),
        event.ignorable,
        json.dumps(event.extra or {}),
    )


class StoreDifferential(StoreSuite):
    """A store equals the memory store: the same operations, the same answers, the same sessions.

    Attributes:
        examples: how many random scripts are played.
        phases: what hypothesis does; without `Phase.shrink` a failure comes fast and is long.
    """

    examples: ClassVar[int] = 60
    phases: ClassVar[Collection[Phase]] = (Phase.generate, Phase.shrink)

    def test_it_equals_the_memory_store(self, tmp_path: Path) -> None:
        """Whatever two handles do, answers, errors and what is stored are the memory store's."""
        folders = (tmp_path / str(n) for n in count())

        @settings(
            max_examples=self.examples,
            phases=self.phases,
            report_multiple_bugs=False,
            suppress_health_check=[HealthCheck.too_slow],
        )
        @given(scripts)
        def check(script: list[Operation]) -> None:
            folder = next(folders)
            folder.mkdir(parents=True)
            expected = _played(partial(MemoryStore, MemoryStorage()), script)
            found = _played(self.factory(folder), script)
            for operation, ours, theirs in zip(
                [*script, ("everything",)], expected, found, strict=True
            ):
                said = (
                    f"{brief(operation)}: expected {brief(ours, 2000)}, got {brief(theirs, 2000)}"
                )
                assert theirs == ours, said

        check()


def _played(factory: Factory, script: list[Operation]) -> list[Any]:
    return anyio.run(Player(factory).play, script)
