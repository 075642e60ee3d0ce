"""Approvals: policies, approvers, suspended turns, decisions from other handles on the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.unit.agent.scenes import agent, assert_lawful, end, new, results, types
from turnlog import Session, open_store
from turnlog.agent import ApprovalRequest, ReactLoopAgent, Tool
from turnlog.commands import Approve, Cancel, Command, Deny, Prompt
from turnlog.models.scripted import Call
from turnlog.repair import is_suspended

Ran = list[str]


def mailer(ran: Ran, approve: Any = "ask") -> Tool:
    """A tool that must be asked about, and notes what it did."""

    def mail(to: str) -> str:
        """Send a mail."""
        ran.append(to)
        return f"sent to {to}"

    return Tool(mail, approve=approve)


def look() -> str:
    """Look."""
    return "seen"


def mail(to: str, call_id: str) -> Call:
    """A call of `mailer`'s tool."""
    return Call("mail", {"to": to}, id=call_id)


def suspended(session: Session) -> bool:
    """Whether repair would leave the session's last turn as it is."""
    return is_suspended(session.header, session.events)


def decisions(session: Session) -> list[tuple[str, str | None]]:
    """What was decided, and why."""
    return [
        (event.data.outcome, event.data.reason)
        for event in session.events
        if event.type == "approval/decided"
    ]


def answering(said: Any) -> Callable[[dict[str, Any]], Any]:
    """A policy that says always the same."""
    return lambda _: said


def is_ada(args: dict[str, Any]) -> bool:
    """A policy by the arguments."""
    return args["to"] == "ada"


@pytest.mark.parametrize(
    ("policy", "runs"),
    [
        ("always", True),
        ("never", False),
        (is_ada, True),
        (lambda args: not is_ada(args), False),  # pyright: ignore[reportUnknownLambdaType,reportUnknownArgumentType]
        (answering("always"), True),
        (answering("perhaps"), False),
        (answering(None), False),
    ],
)
async def test_a_policy_decides_by_itself(policy: Any, *, runs: bool) -> None:
    """Always, never, or a function of the arguments; what it does not know it refuses."""
    ran: Ran = []
    session = new()
    await agent(mail("ada", "c1"), "done", tools=[mailer(ran, policy)]).run(session, "go")
    assert ran == (["ada"] if runs else [])
    assert results(session)[0][2] == (None if runs else "TOOL_DENIED")
    assert "approval/asked" not in types(session)
    assert_lawful(session)


async def test_an_async_policy_may_say_ask() -> None:
    """A function of the arguments may ask for a person, after it has waited."""

    async def policy(args: dict[str, Any]) -> str:
        await anyio.lowlevel.checkpoint()
        return "ask" if args["to"] == "ada" else "always"

    ran: Ran = []
    session = new()
    calls = [mail("ada", "c1"), mail("bob", "c2")]
    runner = agent(calls, "done", tools=[mailer(ran, policy)], approve=denying)
    await runner.run(session, "go")
    assert ran == ["bob"]
    assert_lawful(session)


def script(*calls: Call) -> Callable[[bytes], Any]:
    """An answer with calls; once their results are there, one in words."""
    return lambda body: "done" if b"tool_call_id" in body else list(calls)


def denying(_: ApprovalRequest) -> bool:
    """An approver who never agrees."""
    return False


@pytest.mark.parametrize("granted", [True, False])
async def test_an_approver_is_shown_the_call_and_decides(*, granted: bool) -> None:
    """It gets name and raw arguments, after the question is in the log and before the body runs."""
    ran: Ran = []
    asked: list[tuple[str, str, str]] = []
    session = new()

    async def approve(request: ApprovalRequest) -> bool:
        await anyio.lowlevel.checkpoint()
        asked.append((request.call_id, request.tool_name, request.arguments))
        assert types(session)[-1] == "approval/asked"
        return granted

    runner = agent(mail("ada", "c1"), "done", tools=[mailer(ran)], approve=approve)
    result = await runner.run(session, "go")
    assert result.text == "done"
    assert asked == [("c1", "mail", '{"to":"ada"}')]
    assert ran == (["ada"] if granted else [])
    assert decisions(session) == [("granted" if granted else "denied", None)]
    assert results(session)[0][2] == (None if granted else "TOOL_DENIED")
    assert_lawful(session)


async def test_an_approver_that_fails_runs_nothing() -> None:
    """Its error is raised, the turn is closed, the call was not started."""
    ran: Ran = []
    session = new()

    def approve(_: ApprovalRequest) -> bool:
        raise OSError("no terminal")

    with pytest.raises(OSError, match="no terminal"):
        await agent(mail("ada", "c1"), tools=[mailer(ran)], approve=approve).run(session, "go")
    assert ran == []
    assert results(session)[0][2] == "TOOL_NOT_STARTED"
    assert end(session).error.code == "internal"
    assert_lawful(session)


async def test_without_an_approver_the_turn_is_suspended() -> None:
    """It is healthy: repair leaves it, and running on without a decision changes nothing."""
    ran: Ran = []
    session = new()
    runner = agent(mail("ada", "c1"), "done", tools=[mailer(ran)])
    result = await runner.run(session, "go")
    assert result.end_reason.kind == "suspended"
    assert suspended(session)
    assert session.repair() == []
    length = len(session)
    assert (await runner.run(session)).end_reason.kind == "suspended"
    assert len(session) == length
    assert ran == []


async def _decided(
    folder: Path,
    runner: Callable[[], ReactLoopAgent],
    *commands: Command,
    prompt: str | None = None,
) -> Session:
    """Run a turn, close the store, post from another handle, open again, run on."""
    url = f"jsonl:{folder}"
    async with open_store(url) as store, store.session("s") as session:
        result = await runner().run(session, "go")
        assert result.end_reason.kind == "suspended"
    async with open_store(url) as other:
        for command in commands:
            await other.inbox("s").post(command)
    async with open_store(url) as store:
        async with store.session("s") as session:
            assert suspended(session)
            await runner().run(session, prompt)
            assert_lawful(session)
        return await store.read("s")


async def test_a_denial_wins_over_a_grant_that_was_not_taken_yet(tmp_path: Path) -> None:
    """Whoever changes their mind before the call runs is heard."""
    ran: Ran = []

    def runner() -> ReactLoopAgent:
        return agent(script(mail("ada", "c1")), tools=[mailer(ran)])

    session = await _decided(tmp_path, runner, Approve("c1"), Deny("c1", reason="no"))
    assert results(session) == [("c1", "This call was denied: no", "TOOL_DENIED")]
    assert ran == []


@pytest.mark.parametrize(
    ("command", "text", "code"),
    [
        (Approve("c1"), "sent to ada", None),
        (Deny("c1"), "This call was denied.", "TOOL_DENIED"),
        (Deny("c1", reason="too late"), "This call was denied: too late", "TOOL_DENIED"),
    ],
)
async def test_a_decision_from_another_handle_resumes_the_turn(
    tmp_path: Path, command: Command, text: str, code: str | None
) -> None:
    """After the store was closed and opened again the call runs, or the model reads why not."""
    ran: Ran = []

    def runner() -> ReactLoopAgent:
        return agent(script(mail("ada", "c1")), tools=[mailer(ran)])

    session = await _decided(tmp_path, runner, command)
    assert results(session) == [("c1", text, code)]
    assert ran == (["ada"] if code is None else [])
    assert end(session).kind == "completed"
    assert types(session).count("turn/start") == 1


async def test_calls_that_need_nobody_do_not_end_the_suspension(tmp_path: Path) -> None:
    """Free, forbidden and impossible calls beside the one that waits: all survive the reopening."""
    ran: Ran = []
    calls = (
        Call("look", id="c1"),
        mail("ada", "c2"),
        Call("look", id="c3"),
        Call("wipe", id="c4"),
        Call("nope", id="c5"),
        Call("mail", "{", id="c6"),
    )

    def runner() -> ReactLoopAgent:
        wipe = Tool(lambda: ran.append("wiped"), name="wipe", approve="never")
        return agent(*[script(*calls)] * 2, tools=[mailer(ran), look, wipe])

    session = await _decided(tmp_path, runner, Approve("c2"))
    assert [(call, code) for call, _, code in results(session)] == [
        ("c1", None),
        ("c2", None),
        ("c3", None),
        ("c4", "TOOL_DENIED"),
        ("c5", "TOOL_UNKNOWN"),
        ("c6", "TOOL_BAD_ARGUMENTS"),
    ]
    assert ran == ["ada"]


async def test_a_granted_call_does_not_run_before_one_that_waits(tmp_path: Path) -> None:
    """Results enter in call order; what was granted stays granted until its turn comes."""
    ran: Ran = []

    def runner() -> ReactLoopAgent:
        return agent(*[script(mail("ada", "c1"), mail("bob", "c2"))] * 2, tools=[mailer(ran)])

    session = await _decided(tmp_path, runner, Approve("c2"))
    assert suspended(session)
    assert ran == []
    async with open_store(f"jsonl:{tmp_path}") as store:
        await store.inbox("s").post(Approve("c1"))
        async with store.session("s") as again:
            await runner().run(again)
            assert sorted(ran) == ["ada", "bob"]
            assert_lawful(again)


async def test_a_denial_waits_for_the_calls_before_it(tmp_path: Path) -> None:
    """A denial that came too early is in the inbox until its call's result may enter."""
    ran: Ran = []

    def runner() -> ReactLoopAgent:
        return agent(*[script(mail("ada", "c1"), mail("bob", "c2"))] * 2, tools=[mailer(ran)])

    session = await _decided(tmp_path, runner, Deny("c2", reason="no"))
    assert suspended(session)
    async with open_store(f"jsonl:{tmp_path}") as store:
        assert len(await store.inbox("s").waiting()) == 1
        await store.inbox("s").post(Approve("c1"))
        async with store.session("s") as again:
            await runner().run(again)
            assert results(again) == [
                ("c1", "sent to ada", None),
                ("c2", "This call was denied: no", "TOOL_DENIED"),
            ]
            assert_lawful(again)
        assert await store.inbox("s").waiting() == []


async def test_a_new_prompt_supersedes_a_suspended_turn() -> None:
    """Denied as superseded, closed as aborted, then the prompt's own turn."""
    ran: Ran = []
    session = new()
    runner = agent(mail("ada", "c1"), "fine", tools=[mailer(ran)])
    await runner.run(session, "go")
    result = await runner.run(session, "something else")
    assert (result.turn, result.text) == (2, "fine")
    assert decisions(session) == [("denied", "superseded")]
    assert results(session)[0][2] == "TOOL_DENIED"
    ends = [e.data.reason for e in session.events if e.type == "turn/end"]
    assert ends[0].kind == "aborted"
    assert ends[0].reason == {"kind": "superseded"}
    assert ran == []
    assert_lawful(session)


async def test_a_prompt_that_waits_supersedes_a_suspended_turn(tmp_path: Path) -> None:
    """One in the inbox is as new as the caller's own."""
    ran: Ran = []

    def runner() -> ReactLoopAgent:
        def answer(body: bytes) -> Any:
            return "fine" if b"other" in body else mail("ada", "c1")

        return agent(answer, tools=[mailer(ran)])

    session = await _decided(tmp_path, runner, Prompt("the other thing"))
    assert decisions(session) == [("denied", "superseded")]
    assert end(session).kind == "completed"


async def test_a_decision_that_waits_comes_before_the_callers_prompt(tmp_path: Path) -> None:
    """It was made before: the suspended turn goes on and ends, then the prompt has its own."""
    ran: Ran = []

    def runner() -> ReactLoopAgent:
        return agent(*[script(mail("ada", "c1"))] * 3, tools=[mailer(ran)])

    session = await _decided(tmp_path, runner, Approve("c1"), prompt="and now?")
    assert ran == ["ada"]
    assert types(session).count("turn/start") == 2


async def test_a_cancel_ends_a_suspended_turn(tmp_path: Path) -> None:
    """Its calls are closed as not started."""
    ran: Ran = []

    def runner() -> ReactLoopAgent:
        return agent(script(mail("ada", "c1")), tools=[mailer(ran)])

    session = await _decided(tmp_path, runner, Cancel(turn=1, reason="away"))
    assert end(session).kind == "aborted"
    assert end(session).reason == {"kind": "away"}
    assert results(session)[0][2] == "TOOL_NOT_STARTED"
    assert ran == []


async def test_a_decision_for_a_closed_call_has_no_effect(tmp_path: Path) -> None:
    """Neither a second one, nor one for a call that a later answer uses the id of again."""
    ran: Ran = []

    async with open_store(f"jsonl:{tmp_path}") as store, store.session("s") as session:
        answers = [script(mail("ada", "c1"))] * 2
        runner = agent(*answers, mail("bob", "c1"), tools=[mailer(ran)])
        await runner.run(session, "go")
        for command in (Approve("c1"), Approve("c1"), Approve("nobody")):
            await store.inbox("s").post(command)
        await runner.run(session)
        assert decisions(session) == [("granted", None)]
        await store.inbox("s").post(Approve("c1"))
        result = await runner.run(session, "once more")
        assert result.end_reason.kind == "suspended"
        assert ran == ["ada"]
        assert_lawful(session)


async def test_a_decision_that_a_crash_cut_off_is_made(tmp_path: Path) -> None:
    """Accepted but not logged as decided: the next loop does that, and the call runs once."""
    ran: Ran = []
    url = f"jsonl:{tmp_path}"
    async with open_store(url) as store, store.session("s") as session:
        await agent(mail("ada", "c1"), tools=[mailer(ran)]).run(session, "go")
        approve = {"type": "approve", "callId": "c1", "id": "a1"}
        session.append("inbox/accepted", {"command": approve})
    async with open_store(url) as store, store.session("s") as session:
        result = await agent("done", tools=[mailer(ran)]).run(session)
        assert result.text == "done"
        assert ran == ["ada"]
        assert_lawful(session)


async def test_a_fork_asks_again(tmp_path: Path) -> None:
    """Granted in the parent, the call is closed in the child, and the same call is asked about."""
    ran: Ran = []
    url = f"jsonl:{tmp_path}"
    async with open_store(url) as store:
        async with store.session("s") as session:
            await agent(mail("ada", "c1"), tools=[mailer(ran)]).run(session, "go")
            asked = next(e for e in session.events if e.type == "approval/asked")
            session.append("approval/decided", {"id": asked.data.id, "outcome": "granted"})
        child = await store.fork("s")
        async with store.session(child) as session:
            assert results(session)[0][2] == "TOOL_NOT_STARTED"
            runner = agent(mail("ada", "c1"), tools=[mailer(ran)])
            result = await runner.run(session, "go on")
            assert result.end_reason.kind == "suspended"
            assert ran == []
            assert_lawful(session)


@pytest.mark.parametrize("prompt", [None, "go on"])
async def test_an_import_authorises_nothing(tmp_path: Path, prompt: str | None) -> None:
    """A granted call at the end of an imported log is closed by its end-seed, not run."""
    ran: Ran = []
    source = new("s")
    await agent(mail("ada", "c1"), tools=[mailer(ran)]).run(source, "go")
    asked = next(e for e in source.events if e.type == "approval/asked")
    source.append("approval/decided", {"id": asked.data.id, "outcome": "granted"})
    header = type(source.header)("s", 1, seed_length=source.next_seq)
    runner = agent("fine", tools=[mailer(ran)])
    async with open_store(f"jsonl:{tmp_path}") as store:
        await store.adopt(header, list(source.events))
        async with store.session("s") as session:
            if prompt is None:
                with pytest.raises(Exception, match="nothing to run"):
                    await runner.run(session)
            else:
                await runner.run(session, prompt)
            assert ran == []
            assert results(session)[0][2] == "TOOL_NOT_STARTED"
            assert_lawful(session)


async def test_a_tool_that_was_forbidden_meanwhile_does_not_run(tmp_path: Path) -> None:
    """A grant is no more than the policy allows when the call would run."""
    ran: Ran = []
    policies = iter(["ask", "never"])

    def runner() -> ReactLoopAgent:
        return agent(*[script(mail("ada", "c1"))] * 2, tools=[mailer(ran, next(policies))])

    session = await _decided(tmp_path, runner, Approve("c1"))
    assert results(session)[0][2] == "TOOL_DENIED"
    assert ran == []


async def test_a_call_that_was_free_is_asked_about_when_the_policy_changed(tmp_path: Path) -> None:
    """What the policy granted while the turn was held authorises nothing by itself."""
    ran: Ran = []
    policies: Iterator[Any] = iter(["always", "ask"])

    def runner() -> ReactLoopAgent:
        wipe = Tool(lambda: ran.append("wiped"), name="wipe", approve=next(policies))
        calls = [mail("ada", "c1"), Call("wipe", id="c2")]
        return agent(*[script(*calls)] * 2, tools=[mailer(ran), wipe])

    session = await _decided(tmp_path, runner, Approve("c1"))
    assert suspended(session)
    assert ran == ["ada"]
