"""One command from its words to its exit status: 0 done, 1 it failed, 2 it was misused.

Whatever goes wrong is one line on standard error. `TURNLOG_DEBUG=1` shows tracebacks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from turnlog.cli import misuse
from turnlog.cli.outcome import Failed, Misused
from turnlog.cli.screen import error_line, quiet_stdout, set_up_streams
from turnlog.errors import TurnlogError

DONE, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit status."""
    from turnlog.cli.app import app

    set_up_streams()
    status = DONE
    try:
        status = _run(app, options_last(arguments))
        sys.stdout.flush()
    except BrokenPipeError:
        quiet_stdout()
        return DONE
    except OSError as error:  # what was printed cannot be written
        quiet_stdout()
        if status == DONE:
            error_line(f"standard output: {error.strerror or error}")
        return FAILED
    return status


def _run(app: App, arguments: list[str]) -> int:
    from turnlog.errors import InvalidStoreUrl

    status = FAILED
    try:
        app(
            arguments,
            exit_on_error=False,
            print_error=False,
            help_on_error=False,
            result_action="return_value",
        )
        status = DONE
    except (CycloptsError, Misused) as error:
        what = misuse.said(error) if isinstance(error, CycloptsError) else str(error)
        error_line(what, misuse.help_for(app, arguments))
        status = MISUSED
    except InvalidStoreUrl as error:
        error_line(str(error))
        status = MISUSED
    except KeyboardInterrupt:
        status = INTERRUPTED
    except (Failed, BrokenPipeError) as error:
        if isinstance(error, BrokenPipeError):
            raise
    except TurnlogError as error:
        _reraise_if_debugging()
        error_line(str(error))
    except Exception as error:  # noqa: BLE001 - a bug of ours is one line, too
        _reraise_if_debugging()
        name = type(error).__name__
        error_line(f"unexpected {name}: {error}", "TURNLOG_DEBUG=1 shows where")
    return status


def _reraise_if_debugging() -> None:
    if os.environ.get("TURNLOG_DEBUG", "0") not in ("", "0"):
        raise  # noqa: PLE0704 - called where an exception is being handled


def options_last(arguments: Sequence[str]) -> list[str]:
    """The words with the options of every command that stand before the command put behind it."""
    words = list(arguments)
    first: list[str] = []
    while words:
        if words[0] == "--json" or words[0].startswith("--store="):
            first.append(words.pop(0))
        elif words[0] == "--store" and len(words) > 1:
            first += [words.pop(0), words.pop(0)]
        else:
            break
    return [*words[:1], *first, *words[1:]]
