"""What a validator hands back: violations, collected in a report; and the check for plain JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from turnlog.testing.providers.rules import Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MAX_DEPTH = 512
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: its name (see `Rule`), the path to the value, and what was expected."""

    rule: str
    where: str
    message: str

    def __str__(self) -> str:
        """Return all three on one line."""
        return f"{self.where}: {self.message} [{self.rule}]"


class ProviderRuleError(AssertionError):
    """A request breaks provider rules; `violations` holds every one of them."""

    def __init__(self, what: str, violations: Sequence[Violation]) -> None:
        """Make the error for `what`, a noun such as "request", which broke `violations`."""
        self.violations = tuple(violations)
        lines = "".join(f"\n  {violation}" for violation in self.violations)
        super().__init__(f"{what} breaks {len(self.violations)} provider rule(s):{lines}")


def require_valid(violations: Iterable[Violation], what: str = "request") -> None:
    """Raise `ProviderRuleError`, which lists them all, unless `violations` is empty.

    Use it around a validator: `require_valid(check_openai(body))`.
    """
    if found := list(violations):
        raise ProviderRuleError(what, found)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value: how an error message names it, and whether a value fits."""

    name: str
    fits: Callable[[object], bool]


STRING = Kind("a string", lambda value: isinstance(value, str))
FILLED = Kind("a non-empty string", lambda value: isinstance(value, str) and value != "")
BOOLEAN = Kind("a boolean", lambda value: isinstance(value, bool))
COUNT = Kind("a positive integer", lambda value: type(value) is int and value > 0)
OBJECT = Kind("an object", lambda value: isinstance(value, dict))


@dataclass(slots=True)
class Report:
    """The violations found so far, in the order in which they were found."""

    violations: list[Violation] = field(default_factory=list[Violation])

    def add(self, rule: Rule, where: str, message: str) -> None:
        """Record that the value at `where` breaks `rule`."""
        self.violations.append(Violation(rule.value, where, message))

    def expect(self, rule: Rule, where: str, expected: str, value: object) -> None:
        """Record that `expected` was wanted at `where` and `value` came."""
        self.add(rule, where, f"expected {expected}, got {shown(value)}")

    def check(self, kind: Kind, rule: Rule, where: str, value: object) -> bool:
        """Say whether `value` is of `kind`; record it if not."""
        if fits := kind.fits(value):
            return fits
        self.expect(rule, where, kind.name, value)
        return False


def shown(value: object) -> str:
    """Return `value` as a short text for an error message."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def as_object(value: object) -> dict[str, object] | None:
    """Return `value` if it is a dict, else None; that its keys are strings is `check_json`'s."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


def as_array(value: object) -> list[object] | None:
    """Return `value` if it is a list, else None."""
    return cast("list[object]", value) if isinstance(value, list) else None


def check_json(report: Report, value: object, where: str) -> None:
    """Record each value under `value` that is no plain JSON, and each string with a surrogate.

    Stops at the first value nested deeper than 512 levels, which is how a cycle ends.
    """
    pending: list[tuple[object, str, int]] = [(value, where, 0)]
    while pending:
        current, path, depth = pending.pop()
        if depth > MAX_DEPTH:
            report.add(Rule.NOT_JSON, where, f"nested deeper than {MAX_DEPTH} levels")
            return
        if members := as_object(current):
            for key, member in members.items():
                if report.check(STRING, Rule.NOT_JSON, f"{path} (a key)", key):
                    _check_text(report, key, f"{path} (a key)")
                pending.append((member, f"{path}.{key}" if path else key, depth + 1))
        elif elements := as_array(current):
            pending += [(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(elements)]
        else:
            _check_scalar(report, current, path)


def _check_scalar(report: Report, value: object, where: str) -> None:
    if isinstance(value, str):
        _check_text(report, value, where)
    elif isinstance(value, float):
        if not math.isfinite(value):
            report.expect(Rule.NOT_JSON, where, "a finite number", value)
    elif value is not None and not isinstance(value, int | dict | list):
        report.expect(Rule.NOT_JSON, where, "a JSON value", value)


def _check_text(report: Report, text: str, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        report.add(Rule.LONE_SURROGATE, where, f"has a surrogate: {shown(text)}")
