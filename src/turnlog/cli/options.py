"""What every command takes, and where the sessions are if nobody says."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

EVERYWHERE = Group("Everywhere", sort_key=9)


@Parameter(name="*", group=EVERYWHERE)
@dataclass(frozen=True)
class Options:
    """What every command takes."""

    store: Annotated[
        str | None,
        Parameter(
            help="Where the sessions are: sqlite:FILE, jsonl:DIR, postgresql://USER@HOST/DATABASE. "
            "Else $TURNLOG_STORE, else a file of the user's."
        ),
    ] = None
    json: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="Print JSON, one value a line."),
    ] = False

    @property
    def url(self) -> str:
        """The store's URL."""
        return self._named or default_store()

    @property
    def is_default(self) -> bool:
        """Whether nobody named a store, so that it is the user's own."""
        return not self._named

    @property
    def _named(self) -> str:
        return self.store or os.environ.get("TURNLOG_STORE") or ""


def default_store() -> str:
    """The store that is used when none is named: a file, or the folder that is there instead."""
    file, folder = data_folder() / "sessions.db", older_folder()
    if folder is not None and not file.exists():
        return f"jsonl:{folder}"
    return f"sqlite:{file}"


def older_folder() -> Path | None:
    """The folder in which turnlog kept the user's sessions before it kept them in a file."""
    folder = data_folder() / "sessions"
    return folder if folder.is_dir() else None


def data_folder() -> Path:
    """The folder for turnlog's data in the user's own place for such things."""
    named = os.environ.get("XDG_DATA_HOME", "")
    if named and Path(named).is_absolute():
        return Path(named) / "turnlog"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "turnlog"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "turnlog"
    return Path.home() / ".local" / "share" / "turnlog"


DEFAULTS = Options()
ID_HELP = "The session's id, or 4 or more characters that only it begins with; see turnlog ls."
Id = Annotated[str, Parameter(help=ID_HELP)]
Flag = Parameter(negative="", show_default=False)
