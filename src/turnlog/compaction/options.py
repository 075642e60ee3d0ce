"""What a compaction engine can be told, and which values make no sense."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import UnionType
from typing import Any, Final, Literal, NoReturn, TypeAlias

import msgspec

from turnlog.backoff import Backoff
from turnlog.compaction.estimate import Estimator
from turnlog.compaction.pruner import Pruner
from turnlog.compaction.summary import PromptFor
from turnlog.compaction.task import ModelPolicy
from turnlog.errors import InvalidOption

Fallback: TypeAlias = Literal["structural", "none"]
_FALLBACKS: Final = ("structural", "none")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `BasicCompactionEngine`, which describes them.

    Raises:
        InvalidOption: a value that makes no sense.
    """

    threshold: float
    retain: float
    overrides: Mapping[str, ModelPolicy]
    attempts: int
    stretch: int
    fallback: Fallback
    pruner: Pruner | None
    automatic: bool
    estimator: Estimator
    delay: Backoff
    seconds: float
    prompt: str | PromptFor | None

    def __post_init__(self) -> None:
        _share("threshold", self.threshold, above=0)
        _share("retain", self.retain, above=None)
        _overrides(self.overrides)
        _count("attempts", self.attempts, 1)
        _count("stretch", self.stretch, 1)
        if self.fallback not in _FALLBACKS:
            _refuse("fallback", "'structural' or 'none'", self.fallback)
        _kind("pruner", self.pruner, Pruner | None, "a Pruner or None")
        _kind("automatic", self.automatic, bool, "True or False")
        if not _is_number(self.seconds) or math.isnan(self.seconds) or self.seconds < 0:
            _refuse("seconds", "0 or more", self.seconds)
        if not callable(self.delay):
            _refuse("delay", "a function of the attempt and the failure", self.delay)
        if isinstance(self.prompt, str) and not self.prompt.strip():
            _refuse("prompt", "words that ask for a summary", self.prompt)
        if not (self.prompt is None or isinstance(self.prompt, str) or callable(self.prompt)):
            _refuse("prompt", "a text, a function that makes one, or None", self.prompt)


def _overrides(found: Mapping[str, ModelPolicy]) -> None:
    for name, policy in found.items():
        where = f"overrides[{name!r}]"
        provider, _, model = name.partition(":")
        if not (provider and model):
            _refuse("overrides", "names of models, as in 'openai:gpt-5-mini'", name)
        _kind(where, policy, ModelPolicy, "a ModelPolicy")
        if policy.threshold is not None:
            _share(f"{where}.threshold", policy.threshold, above=0)
        if policy.retain is not None:
            _share(f"{where}.retain", policy.retain, above=None)
        least = {"window": 1, "output": 1, "bytes": 1, "media": 0}
        for option, lowest in least.items():
            value = getattr(policy, option)
            if value is not None:
                _count(f"{where}.{option}", value, lowest)


def _share(option: str, value: float, *, above: int | None) -> None:
    """A part of something, or tokens; between 1 and 2 a number is neither."""
    least = "0 or more" if above is None else f"above {above}"
    expected = f"a part ({least}, at most 1) or tokens (2 or more)"
    if not _is_number(value) or not math.isfinite(value):
        _refuse(option, expected, value)
    if value < 0 or value == above or 1 < value < 2:
        _refuse(option, expected, value)


def _count(option: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        _refuse(option, f"a whole number, {least} or more", value)


def _kind(option: str, value: object, kind: type | UnionType, expected: str) -> None:
    if not isinstance(value, kind):
        _refuse(option, expected, value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refuse(option: str, expected: str, value: object) -> NoReturn:
    raise InvalidOption(option, expected, value)
