"""Forks, and children that end while their parent is busy or idle."""

from __future__ import annotations

import threading

import anyio

from tests.faults.compacting import engine, on, talk
from tests.faults.scenes import agent, assert_lawful, of_type, texts, until
from turnlog import Session, tool
from turnlog.agent import ApprovalRequest
from turnlog.compaction.history import compactions
from turnlog.testing import Call


async def test_an_approval_after_the_fork_does_not_count_in_it() -> None:
    """A fork from before the decision asks again, and the old answer is not returned."""
    asked: list[str] = []
    ran: list[str] = []
    answers = [True, False]

    def decide(request: ApprovalRequest) -> bool:
        asked.append(request.call_id)
        return answers.pop(0)

    @tool(approve="ask")
    def send() -> str:
        ran.append("sent")
        return "sent"

    script = [[Call("send", id="c1")], ["done"]]
    parent = Session.create("parent")
    await agent(*script, tools=[send], approve=decide).run(parent, "send it")
    assert (asked, ran) == (["c1"], ["sent"])
    (question,) = of_type(parent, "approval/asked")
    child = parent.fork(question.seq)
    assert of_type(child, "tool/result")[0].data.error.code == "TOOL_NOT_STARTED"
    await agent(*script, tools=[send], approve=decide).run(child, "send it now")
    assert (asked, ran) == (["c1", "c1"], ["sent"])
    assert of_type(child, "tool/result")[-1].data.error.code == "TOOL_DENIED"
    assert_lawful(parent)
    assert_lawful(child)


async def test_a_fork_goes_on_from_its_own_head() -> None:
    """After a fork at an early event and a turn in it, each branch ends where it was led."""
    parent = Session.create("parent")
    runner = agent(["one"], ["two"])
    await runner.run(parent, "first")
    middle = parent.next_seq - 1
    await runner.run(parent, "second")
    child = parent.fork(middle)
    await agent(["other"]).run(child, "elsewhere")
    assert texts(child) == ["first", "one", "elsewhere", "other"]
    assert texts(parent) == ["first", "one", "second", "two"]
    assert child.events[: middle + 1] == parent.events[: middle + 1]
    assert_lawful(child)


async def test_undo_goes_back_to_before_the_compaction_and_no_further() -> None:
    """Prompt, work, compact, work: the fork has the first work whole, and goes on from there."""
    session = talk(10)
    runner = on(64_000, "worked", compaction=engine(window=64_000))
    await runner.run(session, "work")
    before = list(session.derive_messages())
    await runner.compact(session)
    await runner.run(session, "work on")
    await runner.compact(session)
    first, second = compactions(session)
    child = session.fork(first.start - 1)
    assert list(child.derive_messages()) == before
    assert list(child.request_messages()) == list(session.request_messages(first.start - 1))
    assert compactions(child) == ()
    result = await runner.run(child, "go another way")
    assert result.text == "worked"
    assert texts(child)[-4:] == ["work", "worked", "go another way", "worked"]
    later = session.fork(second.start - 1)
    assert list(later.derive_messages()) == list(session.derive_messages(second.start - 1))
    assert texts(later)[-2:] == ["work on", "worked"]
    for each in (session, child, later):
        assert_lawful(each)


async def test_a_child_that_ends_only_appends_to_its_parent() -> None:
    """Whether the parent is busy or idle when it ends, all that was there stays as it was."""
    began, may_end, idle = threading.Event(), threading.Event(), threading.Event()

    def background() -> str:
        began.set()
        may_end.wait()
        return "what the child found"

    async def quick() -> str:
        child = Session.create("child")
        return (await agent(["child's answer"]).run(child, "child's prompt")).text

    session = Session.create("parent")
    calls = [Call("quick", id="busy"), Call("background", id="idle")]
    runner = agent(calls, ["fine"], tools=[quick, background])
    async with runner.stream(session, "go") as turn:
        await until(turn, "tool/result")
        await anyio.to_thread.run_sync(began.wait)
        before = list(session.events)
        await turn.cancel()
    session.observe(lambda event: idle.set() if event.type == "tool/late-result" else None)
    assert list(session.events)[: len(before)] == before
    before = list(session.events)
    may_end.set()
    await anyio.to_thread.run_sync(idle.wait)
    assert list(session.events)[: len(before)] == before
    await runner.run(session, "and?")
    assert texts(session)[:2] == ["go", ""]
    assert texts(session)[2] == "child's answer"
    assert "what the child found" in texts(session)[4]
    assert_lawful(session)
