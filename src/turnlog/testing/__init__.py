"""What turnlog offers to those who test a store, a model or a view of their own.

`StoreConformance`, `StoreDifferential` and `ModelConformance` are pytest classes that a backend's
test file subclasses; they need the extra `turnlog[testing]`, so they are loaded when they are first
asked for. The validators in `turnlog.testing.providers` and `ScriptedModel`, with the steps of its
answers, need nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from turnlog.models.scripted import Call, End, Fail, Hang, ScriptedModel, Think, Used, Wait

if TYPE_CHECKING:
    from turnlog.testing.conformance import Factory as Factory
    from turnlog.testing.conformance import Handles as Handles
    from turnlog.testing.conformance import StoreConformance as StoreConformance
    from turnlog.testing.conformance import StoreDifferential as StoreDifferential
    from turnlog.testing.models import ModelConformance as ModelConformance

#: What needs pytest, and where it is.
_SUITES = {
    "Factory": "turnlog.testing.conformance",
    "Handles": "turnlog.testing.conformance",
    "ModelConformance": "turnlog.testing.models",
    "StoreConformance": "turnlog.testing.conformance",
    "StoreDifferential": "turnlog.testing.conformance",
}

__all__ = [
    "Call",
    "End",
    "Factory",
    "Fail",
    "Handles",
    "Hang",
    "ModelConformance",
    "ScriptedModel",
    "StoreConformance",
    "StoreDifferential",
    "Think",
    "Used",
    "Wait",
]


def __getattr__(name: str) -> Any:
    if name not in _SUITES:
        msg = f"module 'turnlog.testing' has no attribute {name!r}"
        raise AttributeError(msg)
    import pytest  # noqa: PLC0415 - an extra

    suite = _SUITES[name]
    if suite not in sys.modules:
        pytest.register_assert_rewrite(suite)  # so that a failed test says what it compared
    return getattr(import_module(suite), name)
