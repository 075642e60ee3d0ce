"""The fixed headings of a summary: reading a text by them, and writing it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

GOALS: Final = "Goals"
DECISIONS: Final = "Decisions and constraints"
FILES: Final = "Files"
ERRORS: Final = "Errors and fixes"
STATE: Final = "State"
NEXT: Final = "Next step"
HEADINGS: Final = (GOALS, DECISIONS, FILES, ERRORS, STATE, NEXT)

Sections: TypeAlias = dict[str, list[str]]

_NOTHING: Final = "-"
_HEADING: Final = re.compile(r"^\s*(?:#{1,6}\s*|\*\*|\d+[.)]\s*\*\*)([^*#]+?)[\s:*]*$")
_FIRST_WORDS: Final = {
    "goal": GOALS,
    "decision": DECISIONS,
    "constraint": DECISIONS,
    "file": FILES,
    "error": ERRORS,
    "state": STATE,
    "current": STATE,
    "next": NEXT,
}
_CITED: Final = re.compile(r"\[(?:events?\s+)?#?(\d+(?:\s*,\s*#?\d+)*)\]")


def read(text: str) -> Sections | None:
    """The lines of a text by heading; None when it has none of the headings.

    What stands before the first of them is left out; what stands under others belongs to the state.
    """
    found: Sections = {}
    current: list[str] | None = None
    for line in text.splitlines():
        heading = _HEADING.match(line)
        if heading is not None:
            name = _named(heading[1])
            if name is not None or current is not None:
                current = found.setdefault(name or STATE, [])
        elif current is not None and line.strip() and line.strip() != _NOTHING:
            current.append(line.rstrip())
    return found or None


def write(sections: Sections) -> str:
    """A text with all headings in their order."""
    return "\n\n".join(
        f"## {name}\n" + "\n".join(sections.get(name) or [_NOTHING]) for name in HEADINGS
    )


def cited(text: str) -> set[int]:
    """The seqs that a text cites, as in `[12]` or `[3, 12]`."""
    return {int(n.strip(" #")) for found in _CITED.finditer(text) for n in found[1].split(",")}


def without_unknown(lines: Iterable[str], known: set[int]) -> list[str]:
    """The lines but those that cite a seq that is not `known`: nobody said what they claim."""
    return [line for line in lines if cited(line) <= known]


def fit(lines: Sequence[str], characters: int) -> list[str]:
    """The first line and the last ones, as many as fit; each once."""
    once = list(dict.fromkeys(lines))
    if not once:
        return []
    kept: list[str] = []
    left = characters - len(once[0])
    for line in reversed(once[1:]):
        left -= len(line) + 1
        if left < 0:
            break
        kept.append(line)
    return [once[0][: max(characters, 0)], *reversed(kept)]


def merged(older: Sections | None, newer: Sections, characters: int) -> Sections:
    """Two summaries as one of about so many characters; what is older goes first.

    What a section does not need of its share is the others'.
    """
    found: Sections = {}
    for name in HEADINGS:
        before, now = (older or {}).get(name, []), newer.get(name, [])
        if name in (STATE, NEXT) and now:
            before = []  # what was is no longer so
        found[name] = [*before, *now]
    needs = {name: sum(len(line) + 1 for line in lines) for name, lines in found.items()}
    parts = {name: 2 if name == GOALS else 1 for name in HEADINGS}
    for name in sorted(HEADINGS, key=lambda name: needs[name] / parts[name]):
        share = characters * parts[name] // sum(parts.values())
        found[name] = fit(found[name], max(share, 1))
        characters -= min(needs[name], share)
        del parts[name]
    return found


def _named(said: str) -> str | None:
    words = said.strip().lower().split()
    if not words:
        return None
    return next((name for word, name in _FIRST_WORDS.items() if words[0].startswith(word)), None)
