"""Killing `agent_child`, and what must hold of what it leaves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random

from tests.crash.agent_child import SESSION, Digest, make_agent
from tests.unit.agent.scenes import assert_lawful
from turnlog import Session, open_store
from turnlog.dialects import ENCODERS, encoder
from turnlog.events import Header, ModelConfig
from turnlog.testing.providers import check_anthropic, check_openai, require_valid

CHILD = Path(__file__).with_name("agent_child.py")
MOST_LINES = 40


class Lost(AssertionError):
    """The session is not what it must be after a kill."""


def kill_at_random(store_url: str, effects: Path, dice: Random) -> tuple[int, str] | None:
    """Run the child, kill it after a random number of lines; what it acknowledged last."""
    command = [sys.executable, str(CHILD), store_url, str(effects), str(dice.randrange(2**31))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=CHILD.parents[2]) as process:
        assert process.stdout is not None
        lines = list(islice(process.stdout, dice.randint(1, MOST_LINES)))
        process.send_signal(signal.SIGKILL)
        lines += process.stdout  # what it said before it died
    if process.returncode != -signal.SIGKILL:
        raise Lost(f"the child ended by itself: {process.returncode}")
    whole = [line for line in lines if line.endswith(b"\n")]
    if not whole:
        return None
    _, seq, digest = whole[-1].split()
    return int(seq), digest.decode()


async def check(
    store_url: str,
    effects: Path,
    acknowledged: tuple[int, str],
    seed: int,
    *,
    steal: bool = False,
) -> None:
    """Nothing acknowledged is lost, nothing ran twice, and the agent runs on.

    Args:
        store_url: the store's.
        effects: the file to which bodies append their tokens.
        acknowledged: the last that the killed child said: a seq and the digest before it.
        seed: of the agent that runs on.
        steal: do not wait until the lease of the killed child is over.

    Raises:
        AssertionError: one of these does not hold.
    """
    async with (
        open_store(store_url) as store,
        store.session(SESSION, load="all", steal=steal) as session,
    ):
        seq, digest = acknowledged
        if Digest().add(session.events[:seq]) != digest:
            raise Lost(f"event 0 to {seq - 1} are not what was acknowledged")
        if session.damage:
            raise Lost(f"the session is damaged: {session.damage}")
        assert_lawful(session)
        check_next_request(session)
        await make_agent(effects, seed).run(session, "go on")
        if session.events[-1].data.reason.kind not in ("completed", "limit"):
            raise Lost(f"the agent does not run on: {session.events[-1]}")
        check_next_request(session)
        check_effects(session, effects)


def check_next_request(session: Session) -> None:
    """Any provider takes what would be sent next."""
    messages = session.request_messages()
    for name in ENCODERS:
        provider = name.partition("@")[0].partition("-")[0]
        header = Header(ModelConfig(provider, "m-1"), "Be brief.")
        wire = json.loads(encoder(name).encode(header, messages, instruction="Go on."))
        if provider == "anthropic":
            require_valid(check_anthropic(wire))
        else:
            require_valid(check_openai(wire, "deepseek" if provider == "deepseek" else "openai"))


def check_effects(session: Session, effects: Path) -> None:
    """Each body ran at most once, and none whose call had not been logged before."""
    ran = Counter(effects.read_text().split()) if effects.exists() else Counter[str]()
    called = {
        json.loads(event.data.arguments)["token"]
        for event in session.events
        if event.type == "tool/call"
    }
    twice = [token for token, times in ran.items() if times > 1]
    if twice:
        raise Lost(f"ran twice: {twice}")
    if unknown := set(ran) - called:
        raise Lost(f"ran without a tool/call in the log: {sorted(unknown)}")
