"""Needle: of 40 facts in a long session, how many are still to be had after compactions.

A fact counts when its answer is in `request_messages()`, or in the text of the first hit of
`recall` for the words of a question about it. One fact in five is a rule and is pinned when it is
said. Summaries are scripted: a seeded random 30 % of the sentences that the model was shown; or
there is no model, and the structural fallback has to do. The control has neither pins nor recall.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from measure import Options, report, row

from turnlog import BasicCompactionEngine, Session
from turnlog.compaction.recall import recall
from turnlog.content import ToolCall
from turnlog.models.scripted import ScriptedModel

COMPACTIONS = (1, 3, 10)
FILLER = 12  # exchanges between two facts
KEPT = 0.3  # of the sentences
Kind = Literal["rule", "said", "answered", "file", "error"]


class Fact(NamedTuple):
    """Something that was said once: how, what one would ask for it, and the answer."""

    kind: Kind
    text: str
    question: str
    answer: str


FACTS = (
    Fact("rule", "Never deploy on a Friday.", "On which day must we not deploy?", "Friday"),
    Fact("said", "The database listens on port 5433.", "Which port has the database?", "5433"),
    Fact(
        "answered", "I named the helper parse_tides.", "What is the helper called?", "parse_tides"
    ),
    Fact(
        "file", "src/harbour/berths.py: def free_berths(day)", "Where is free_berths?", "berths.py"
    ),
    Fact("error", "KeyError: 'draught'", "Which KeyError was there?", "draught"),
    Fact("rule", "All amounts are in Danish crowns.", "In which currency are amounts?", "Danish"),
    Fact("said", "My sister Ragnhild signs the contracts.", "Who signs contracts?", "Ragnhild"),
    Fact("answered", "The budget comes to 48,200.", "How large is the budget?", "48,200"),
    Fact("file", "deploy/nginx.conf: client_max_body_size 12m", "Limit of the body?", "12m"),
    Fact(
        "error", "connection to pg-replica-7 refused", "Which connection was refused?", "replica-7"
    ),
    Fact("rule", "Write no comments in Dutch.", "In which language no comments?", "Dutch"),
    Fact("said", "The release is due on 14 March.", "When is the release due?", "14 March"),
    Fact("answered", "We chose zstd as the compression.", "Which compression was chosen?", "zstd"),
    Fact("file", "README.md: Licence: MPL-2.0", "What licence does the README name?", "MPL-2.0"),
    Fact("error", "exit status 137 of the migration", "How did the migration exit?", "137"),
    Fact("rule", "Ask Ole before touching billing.", "Whom to ask about billing?", "Ole"),
    Fact("said", "The gate code is 4711.", "What is the code of the gate?", "4711"),
    Fact(
        "answered",
        "The slowest query scans berth_log.",
        "What does the slowest query scan?",
        "berth_log",
    ),
    Fact(
        "file", "settings.toml: retries = 9", "How many retries are in the settings?", "retries = 9"
    ),
    Fact(
        "error",
        "SSLError: certificate of tide.example expired",
        "Whose certificate?",
        "tide.example",
    ),
    Fact("rule", "Keep Python 3.9 working.", "Which Python must keep working?", "3.9"),
    Fact("said", "港の責任者は田中さんです。", "責任者は誰?", "田中"),
    Fact("answered", "Use the flag --no-ff for merges.", "Which flag for merges?", "--no-ff"),
    Fact("file", "src/crane.py: MAX_LOAD = 32_500", "What is the MAX_LOAD of a crane?", "32_500"),
    Fact(
        "error", "assert 17 == 18 in test_high_water", "What failed in test_high_water?", "17 == 18"
    ),
    Fact("rule", "Personal data stays in Iceland.", "Where does personal data stay?", "Iceland"),
    Fact("said", "Call the boat Morgenstern.", "What is the name of the boat?", "Morgenstern"),
    Fact(
        "answered", "The cache is kept for 90 seconds.", "How long is the cache kept?", "90 seconds"
    ),
    Fact("file", "ops/backup.sh: restic -r /mnt/vault7", "Where does restic back up to?", "vault7"),
    Fact(
        "error", "disk quota exceeded on build-eu-3", "Where was the quota exceeded?", "build-eu-3"
    ),
    Fact("rule", "Every pull request needs two reviews.", "How many reviews?", "two reviews"),
    Fact("said", "The customer is Nordlys AS.", "Who is the customer?", "Nordlys"),
    Fact("answered", "Invoices are numbered from 70001.", "Invoices are numbered how?", "70001"),
    Fact("file", "schema.sql: CREATE TABLE moorings", "Which table is in the schema?", "moorings"),
    Fact("error", "timeout after 45 s in sync_tides", "When does sync_tides time out?", "45 s"),
    Fact("rule", "Log nothing about passengers.", "About whom is nothing logged?", "passengers"),
    Fact("said", "Standup is at a quarter past nine.", "When is the standup?", "quarter past nine"),
    Fact(
        "answered", "The bug came with commit 9f3ab21.", "Which commit brought the bug?", "9f3ab21"
    ),
    Fact("file", "fleet.csv: Albatros,1987,42m", "When was the Albatros built?", "1987"),
    Fact("error", "locale nb_NO.UTF-8 not found", "Which locale was not found?", "nb_NO"),
)
_OPENINGS = ("Let us look at", "Now", "Then we go on with", "I would check", "Please review")
_THINGS = (
    "the tests",
    "the layout",
    "the pier",
    "the queue",
    "the report",
    "the names",
    "the menu",
)
_ENDS = ("once more", "in the next step", "before lunch", "as discussed", "with some care")


def filler(chance: random.Random) -> str:
    """A few sentences that hold no fact."""
    said = (
        f"{chance.choice(_OPENINGS)} {chance.choice(_THINGS)} {chance.choice(_ENDS)}."
        for _ in range(6)
    )
    return " ".join(said)


def tell(session: Session, fact: Fact, number: int, chance: random.Random) -> int:
    """Say a fact among other things; returns its event."""
    said = f"{filler(chance)} {fact.text} {filler(chance)}"
    if fact.kind in ("rule", "said"):
        seq = session.add_user(said if fact.kind == "said" else fact.text).seq
        session.add_assistant(filler(chance))
        return seq
    session.add_user(filler(chance))
    if fact.kind == "answered":
        return session.add_assistant(said).seq
    call = f"call-{number}"
    session.add_assistant([ToolCall(call, "run", f'{{"number": {number}}}')])
    return session.add_tool_result(call, said, is_error=fact.kind == "error").seq


def forgetful(seed: int) -> ScriptedModel:
    """A model whose summary is a random part of the sentences that it is shown."""
    chance = random.Random(seed)  # noqa: S311 - no secret

    def answer(body: bytes) -> str:
        *said, _ = json.loads(body)["messages"]
        text = "\n".join(m["content"] for m in said if isinstance(m.get("content"), str))
        sentences = [s.strip() for s in re.split(r"(?<=[.!?。])\s|\n", text) if s.strip()]
        return "\n".join(s for s in dict.fromkeys(sentences) if chance.random() < KEPT)

    return ScriptedModel([answer], repeat=True, context_window=32_768)


async def compacted(
    facts: tuple[Fact, ...], times: int, seed: int, *, model: bool, pins: bool
) -> Session:
    """The session with its facts, compacted so many times, the last time at its end."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    made = forgetful(seed) if model else ScriptedModel([""], repeat=True, context_window=32_768)
    engine = BasicCompactionEngine(made, attempts=1)
    session = Session.create("needle")
    due = {round(len(facts) * (k + 1) / times) for k in range(times)}
    for number, fact in enumerate(facts, 1):
        seq = tell(session, fact, number, chance)
        if pins and fact.kind == "rule":
            session.pin(seq)
        for _ in range(FILLER):
            session.add_user(filler(chance))
            session.add_assistant(filler(chance))
        if number in due:
            done = await engine.compact_now(session)
            if done is None or done.policy != ("model" if model else "structural"):
                msg = f"expected another compaction, got {done}"
                raise ValueError(msg)
    return session


def found(session: Session, facts: tuple[Fact, ...], *, recalling: bool) -> tuple[int, int]:
    """How many answers the next request has, and how many there are with recall."""
    shown = "\n".join(message.text for message in session.request_messages())
    visible = [fact.answer in shown for fact in facts]
    had = 0
    for fact, is_visible in zip(facts, visible, strict=True):
        hits = recall(session, fact.question, limit=1) if recalling and not is_visible else ()
        had += is_visible or any(fact.answer in hit.text for hit in hits)
    return sum(visible), had


def measure(options: Options) -> Iterator[dict[str, Any]]:
    """A row for each way to summarise, after one, three and ten compactions."""
    facts = FACTS[: options.size(len(FACTS), 10)]
    seeds = range(options.size(5, 1))
    for what, model, pins in (
        (f"summaries keep {KEPT:.0%} of the sentences", True, True),
        ("no model, structural summaries", False, True),
        (f"control: {KEPT:.0%}, without pins and recall", True, False),
    ):
        counts = {
            times: [
                found(
                    asyncio.run(compacted(facts, times, seed, model=model, pins=pins)),
                    facts,
                    recalling=pins,
                )
                for seed in seeds
            ]
            for times in COMPACTIONS
        }
        shown = [_mean([one for one, _ in counts[times]]) for times in COMPACTIONS]
        had = [_mean([one for _, one in counts[times]]) for times in COMPACTIONS]
        said = f"{_list(had)} of {len(facts)}"
        if pins:
            said += f"; {_list(shown)} in the request itself"
        yield row(
            "needle",
            f"facts to be had after 1 / 3 / 10 compactions, {what}",
            said,
            f"{len(facts) * 9 // 10} of {len(facts)}" if pins else "-",
            met=min(had) >= len(facts) * 9 // 10 if pins else None,
            shown=shown,
            had=had,
        )


def _mean(counts: list[int]) -> float:
    return sum(counts) / len(counts)


def _list(numbers: list[float]) -> str:
    return " / ".join(f"{number:.3g}" for number in numbers)


if __name__ == "__main__":
    report(measure)
