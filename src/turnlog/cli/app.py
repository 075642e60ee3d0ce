"""The commands by name."""

from __future__ import annotations

from collections.abc import Callable
from inspect import cleandoc

from cyclopts import App, Group

from turnlog.cli import (
    changing,
    chatting,
    checking,
    commanding,
    compacting,
    copying,
    following,
    migrating,
    reading,
    running,
    searching,
    transfer,
    working,
)


def _version() -> str:
    from turnlog import __version__

    return __version__


RUN = Group("Run", sort_key=0)
READ = Group("Read", sort_key=1)
WRITE = Group("Write", sort_key=2)
CHECK = Group("Check", sort_key=3)

EPILOGUE = """\
Examples:

  turnlog run "Why is the sky blue?"
  turnlog chat --session trip
  turnlog import ~/.dsh/sessions
  turnlog ls
  turnlog search "blue sky"
  turnlog show ID --tools
  turnlog messages ID --at 40

turnlog COMMAND --help says more.

--store URL and --json go with every command.

Exit status: 0 done, 1 it failed, search or recall found nothing, or verify
found a fault, 2 misuse.
"""


def _examples(command: Callable[..., object]) -> str:
    """The examples of a command's docstring, which cyclopts leaves out of its help."""
    _, _, examples = cleandoc(command.__doc__ or "").partition("\nExamples:\n")
    return "Examples:\n\n" + "\n".join(f"  {line.strip()}" for line in examples.splitlines())


app = App(
    name="turnlog",
    help="Sessions of LLM agents as append-only logs: run, read, wind back, fork, verify.",
    help_format="plaintext",
    help_epilogue=EPILOGUE,
    version=_version,
    version_flags=["--version", "-V"],
    help_flags=["--help", "-h"],
)

for group, commands in (
    (RUN, (running.run, chatting.chat, commanding.cancel, commanding.steer)),
    (RUN, (commanding.approvals, commanding.approve, commanding.deny)),
    (RUN, (working.worker, working.post)),
    (READ, (reading.ls, reading.show, reading.messages, reading.events, reading.requests)),
    (READ, (searching.search, following.tail, compacting.compactions, compacting.recall)),
    (WRITE, (changing.fork, changing.repair, transfer.import_, transfer.export, copying.copy)),
    (WRITE, (compacting.compact, compacting.pin, compacting.unpin)),
    (CHECK, (checking.verify, checking.stats, checking.doctor, migrating.migrate)),
):
    for command in commands:
        name = command.__name__.rstrip("_")
        app.command(command, name=name, group=group, help_epilogue=_examples(command))
