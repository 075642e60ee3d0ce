"""The command that goes on with a session is the one that was typed, but for the prompt."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.e2e.command import turnlog
from tests.e2e.scripts import write_script
from turnlog.cli.agents import AgentOptions, continuing
from turnlog.cli.options import Options

OPTIONS = [
    "--context-window 4000",
    "--recall",
    "--tool a:b --tool c:d",
    "--max-steps 3",
    "--max-output-tokens 100",
    "--temperature 0.0",
    "--yes",
]


@pytest.mark.parametrize("command", ["run", "chat"])
def test_every_option_of_the_agent_is_said_again(command: str) -> None:
    """And the store, quoted as a shell needs it; what the session keeps is not."""
    chosen = AgentOptions(
        model="local:smollm2",
        context_window=4000,
        system="Be brief.",
        tool=["a:b", "c:d"],
        recall=True,
        max_steps=3,
        max_output_tokens=100,
        temperature=0.0,
        yes=True,
    )
    said = continuing("my trip", chosen, Options("sqlite:a b.db"), command=command)
    words = f"turnlog {command} --session 'my trip' --model local:smollm2 {' '.join(OPTIONS)}"
    assert said == f"{words} --store 'sqlite:a b.db'"


def test_what_was_not_typed_is_not_said() -> None:
    """Defaults and the environment are there the next time, too."""
    assert continuing("s", AgentOptions(), Options()) == "turnlog run --session s"


def test_a_conversation_keeps_its_choice_of_tools() -> None:
    """A single turn's choice is that turn's."""
    chosen = AgentOptions(tool_choice="none")
    assert continuing("s", chosen, Options(), command="chat").endswith(" --tool-choice none")
    assert "--tool-choice" not in continuing("s", chosen, Options())


def test_the_hint_works_as_it_is_printed(tmp_path: Path) -> None:
    """With a prompt behind it, it goes on with the session."""
    url, model = f"sqlite:{tmp_path / 'a b.db'}", write_script(tmp_path, "Hello.")
    words = ["run", "hi", "--session", "s", "--model", model, "--max-steps", "7", "--store", url]
    (*_, hint) = turnlog(*words).err.splitlines()
    _, _, line = hint.partition(": turnlog ")
    again = turnlog(*shlex.split(line.removesuffix(" PROMPT")), "and again")
    assert (again.status, again.out) == (0, "Hello.\n")
    assert again.err.endswith(f"{hint}\n")
