"""P9: the first page of a listing of 10,000 sessions; full-text search over 100,000 messages.

SQLite. The store is open and the search's index is made, as after the first search; times are on
the clock, of the quietest of several rounds. The words of the messages are as frequent as words
are (Zipf): the first is in nearly all messages, most of the others are in a few.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import accumulate
from random import Random
from typing import Any

import anyio
from measure import Options, report, row, scratch

import turnlog
from turnlog import Session

SESSIONS = 10_000
MESSAGES = 100_000
EACH = 1_000  # messages of a session that is searched
VOCABULARY = 20_000
PAGE = 100  # lines
TOP = 20  # hits
ROUNDS = 15
AT_ONCE = 8  # sessions that are saved side by side


class Speaker:
    """Says sentences of words that are as frequent as words are."""

    def __init__(self) -> None:
        self._dice = Random(7)  # noqa: S311 - no secret
        letters = "abcdefghijklmnopqrstuvwxyz"
        made = {
            "".join(self._dice.choices(letters, k=self._dice.randint(2, 9)))
            for _ in range(VOCABULARY)
        }
        self.words = sorted(made)
        self._dice.shuffle(self.words)
        self._weights = list(accumulate(1 / rank for rank in range(1, len(self.words) + 1)))

    def say(self, count: int) -> str:
        """So many words."""
        return " ".join(self._dice.choices(self.words, cum_weights=self._weights, k=count))


async def list_page(store: turnlog.Store) -> int:
    """Read the first page of the listing; how many lines there were."""
    lines = 0
    async for _ in store.sessions():
        lines += 1
        if lines == PAGE:
            break
    return lines


async def listing(url: str, speaker: Speaker, sessions: int, rounds: int) -> tuple[float, float]:
    """Seconds of a page from an open store, and of opening it and a page."""
    async with turnlog.open_store(url, durability="none") as store:
        numbers = iter(range(sessions))

        async def save() -> None:
            for i in numbers:
                session = Session.create(f"session-{i}")
                session.add_user(speaker.say(60))
                session.add_assistant(speaker.say(60))
                await store.save(session)

        async with anyio.create_task_group() as tasks:
            for _ in range(AT_ONCE):
                tasks.start_soon(save)
    page: list[float] = []
    whole: list[float] = []
    for _ in range(rounds):
        opening = time.perf_counter()
        async with turnlog.open_store(url) as store:
            start = time.perf_counter()
            lines = await list_page(store)
            page.append(time.perf_counter() - start)
            whole.append(time.perf_counter() - opening)
            if lines != min(PAGE, sessions):
                msg = f"expected {PAGE} lines, got {lines}"
                raise ValueError(msg)
    return min(page), min(whole)


async def searching(
    url: str, speaker: Speaker, messages: int, rounds: int
) -> tuple[float, dict[str, tuple[float, int]]]:
    """Seconds of making the index; and of each search, with how many hits it gave."""
    words = speaker.words
    rare = words[len(words) // 2]
    asked = {
        "a rare word": rare,
        "a word in one message of ten": words[60],
        "two of these": f"{words[55]} {words[70]}",
        "the most frequent word": words[0],
    }
    async with turnlog.open_store(url, durability="none") as store:
        left = messages
        while left > 0:
            session = Session.create()
            for i in range(min(EACH, left)):
                (session.add_assistant if i % 2 else session.add_user)(speaker.say(70))
            await store.save(session)
            left -= EACH
        start = time.perf_counter()
        await store.search(rare)
        made = time.perf_counter() - start
        found: dict[str, tuple[float, int]] = {}
        for name, text in asked.items():
            taken: list[float] = []
            hits = 0
            for _ in range(rounds):
                start = time.perf_counter()
                hits = len(await store.search(text, limit=TOP))
                taken.append(time.perf_counter() - start)
            found[name] = min(taken), hits
        return made, found


def measure(options: Options) -> Iterator[dict[str, Any]]:
    """A row for the listing, and one for each search."""
    speaker = Speaker()
    rounds = 1 if options.small else ROUNDS
    sessions, messages = options.size(SESSIONS, 5), options.size(MESSAGES, 60)
    with scratch() as folder:
        page, whole = anyio.run(listing, f"sqlite:{folder}/s.db", speaker, sessions, rounds)
    yield row(
        "P9",
        f"first {PAGE} lines of a listing of {sessions:,} sessions, SQLite",
        f"{page * 1e3:.1f} ms ({whole * 1e3:.1f} with opening the store)",
        "10 ms",
        met=None if options.small else page <= 0.01,
        ms=page * 1e3,
    )
    with scratch() as folder:
        made, found = anyio.run(searching, f"sqlite:{folder}/s.db", speaker, messages, rounds)
    for name, (taken, hits) in found.items():
        yield row(
            "P9",
            f"search for {name} in {messages:,} messages, SQLite",
            f"{taken * 1e3:.1f} ms, {hits} hits",
            "40 ms",
            met=None if options.small else taken <= 0.04,
            ms=taken * 1e3,
            index_s=made,
        )


if __name__ == "__main__":
    report(measure)
