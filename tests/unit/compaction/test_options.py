"""Options that make no sense are refused where the engine is made; the summary's own words."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.faults.compacting import asked, engine, talk
from turnlog import BasicCompactionEngine, ReactLoopAgent
from turnlog.compaction.pruner import Pruner
from turnlog.compaction.summary import SummaryRequest
from turnlog.compaction.task import ModelPolicy
from turnlog.errors import InvalidModel, InvalidOption, TurnlogError
from turnlog.events import CompactionEnd, RequestSent
from turnlog.models.scripted import ScriptedModel

GOOD = "## Goals\n- ship it"
MODEL = "openai:gpt-5-mini"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("threshold", value) for value in (-1, 0, 1.5, math.nan, math.inf, "0.8", True)),
        *(("retain", value) for value in (-0.1, 1.5, math.nan, None)),
        *(("attempts", value) for value in (0, -1, 1.5, True)),
        *(("stretch", value) for value in (0, "2")),
        *(("seconds", value) for value in (-1, math.nan, "300")),
        ("fallback", "structual"),
        ("pruner", 8192),
        ("automatic", "no"),
        ("delay", 5),
        ("prompt", " "),
        ("prompt", 7),
        ("model", 0.8),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(option: str, value: Any) -> None:
    """The error is typed, says what was expected, and names the option in one line."""
    with pytest.raises(InvalidOption, match=f"^{option}: expected .*, got ") as caught:
        BasicCompactionEngine(**{option: value})
    assert (caught.value.option, str(caught.value).count("\n")) == (option, 0)
    assert isinstance(caught.value, TurnlogError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("overrides", "option"),
    [
        ({"gpt-5-mini": ModelPolicy()}, "overrides"),
        ({MODEL: 0.8}, f"overrides['{MODEL}']"),
        ({MODEL: ModelPolicy(threshold=-1)}, f"overrides['{MODEL}'].threshold"),
        ({MODEL: ModelPolicy(retain=math.inf)}, f"overrides['{MODEL}'].retain"),
        ({MODEL: ModelPolicy(window=0)}, f"overrides['{MODEL}'].window"),
        ({MODEL: ModelPolicy(media=-1)}, f"overrides['{MODEL}'].media"),
    ],
)
def test_an_override_that_makes_no_sense_is_refused(overrides: Any, option: str) -> None:
    """So is one for a name that no model can have: it would never be looked at."""
    with pytest.raises(InvalidOption) as caught:
        BasicCompactionEngine(overrides=overrides)
    assert caught.value.option == option


@pytest.mark.parametrize(
    "options",
    [
        {"threshold": 1, "retain": 0},
        {"threshold": 2, "retain": 1},
        {"threshold": 100_000, "retain": 25_000, "seconds": math.inf, "pruner": None},
        {"overrides": {MODEL: ModelPolicy(0.5, 0.1, 272_000, 1000, 10**6, 0)}},
        {"pruner": Pruner(0, 0, 0, 0, 0), "attempts": 1, "stretch": 1, "fallback": "none"},
    ],
)
def test_the_extremes_that_make_sense_are_taken(options: dict[str, Any]) -> None:
    """Parts from nothing to all, tokens, no limit, nothing kept."""
    with pytest.raises(InvalidModel, match="has no model"):
        _ = BasicCompactionEngine(**options).model


# -- whose model -------------------------------------------------------------------------------


async def test_without_a_model_it_asks_the_agents() -> None:
    """An engine with settings only may serve several agents, each with its own model."""
    shared = BasicCompactionEngine(threshold=0.5)
    for name in ("scripted:one", "scripted:two"):
        model = ScriptedModel([GOOD], repeat=True, name=name, context_window=16_000)
        session = talk(40)
        done = await ReactLoopAgent(model, compaction=shared).compact(session)
        assert done is not None
        assert done.policy == "model"
        sent = [e.data for e in session.events if isinstance(e.data, RequestSent)]
        assert [(request.purpose, request.model) for request in sent] == [("compaction", name)]


async def test_a_model_of_its_own_is_asked() -> None:
    """An engine that has a model does not ask the agent's."""
    made, session = engine(window=16_000), talk(40)
    agent = ReactLoopAgent(ScriptedModel([], context_window=4000), compaction=made)
    assert await agent.compact(session) is not None
    assert len(asked(made)) == 1


async def test_without_a_model_and_without_an_agent_there_is_nobody_to_ask() -> None:
    """The error says how to name one, and the session is as it was."""
    session = talk(40)
    before = len(session)
    with pytest.raises(InvalidModel, match="give the engine to an agent"):
        await BasicCompactionEngine().compact_now(session)
    assert len(session) == before


# -- the words ---------------------------------------------------------------------------------


def sent(made: BasicCompactionEngine) -> str:
    """The last request as text."""
    return asked(made)[-1].decode()


async def test_a_text_takes_the_place_of_the_usual_words() -> None:
    """What a person wishes is still said; the log holds the words, so the request is proved."""
    made, session = engine(window=16_000, prompt="List what was decided."), talk(40)
    assert await made.compact_now(session, instruction="Keep the schema.") is not None
    assert "List what was decided." in sent(made)
    assert "The user asks in particular: Keep the schema." in sent(made)
    assert "Summarize our conversation" not in sent(made)
    (request,) = [e.data for e in session.events if isinstance(e.data, RequestSent)]
    assert (request.instruction or "").startswith("List what was decided.")
    assert [finding for finding in session.verify() if finding.level == "fault"] == []


@pytest.mark.parametrize(("window", "usual"), [(4000, "a few sentences"), (20_000, "## Goals")])
async def test_a_function_knows_what_is_asked_for(window: int, usual: str) -> None:
    """Window, words, messages with their seqs, and the words that are usual for such a window."""
    seen: list[SummaryRequest] = []

    def prompt(wanted: SummaryRequest) -> str:
        seen.append(wanted)
        return f"{wanted.default}\nIn Dutch, please."

    made, session = engine(window=window, prompt=prompt), talk(40)
    assert await made.compact_now(session) is not None
    last = seen[-1]
    assert (last.window, last.words >= 50) == (window, True)
    assert usual in last.default
    seqs = [seq for seq, _ in last.messages]
    assert seqs == sorted(seqs)
    assert [message for _, message in last.messages] == [
        session.event_at(seq).message for seq in seqs
    ]
    assert "In Dutch, please." in sent(made)


async def test_parts_are_asked_for_in_the_same_words() -> None:
    """A range too large for one request: each has the words, and what came before."""
    made = engine(window=2000, prompt="In short, what happened?")
    session = talk(60)
    assert await made.compact_now(session) is not None
    requests = [request.decode() for request in asked(made)]
    assert len(requests) > 1
    assert all("In short, what happened?" in request for request in requests)
    assert "What came before the messages above, in short" in requests[-1]


@pytest.mark.parametrize("made", ["", "  \n", None, 7])
async def test_a_function_that_makes_no_words_is_a_fault_of_its_own(made: Any) -> None:
    """It is not taken for a model's failure: it is raised, the bracket closed, nothing replaced."""
    session = talk(40)
    before = session.surface.seqs

    def prompt(wanted: SummaryRequest) -> Any:
        del wanted
        return made

    with pytest.raises(InvalidOption, match=r"^prompt: expected a function that returns words"):
        await engine(prompt=prompt).compact_now(session)
    end = session.events[-1].data
    assert isinstance(end, CompactionEnd)
    match end.error:
        case {"code": code}:
            assert (code, session.surface.seqs) == ("internal", before)
        case other:
            pytest.fail(f"expected an error with a code, got {other!r}")
