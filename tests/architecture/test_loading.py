"""What is not used is not loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import cast

PROBE = """\
import json, sys
before = set(sys.modules)
import {module}
print(json.dumps(sorted({{name.partition(".")[0] for name in set(sys.modules) - before}})))
"""

# Standard modules that cost time or memory and that a session in memory has no use for.
HEAVY = {"asyncio", "email", "http", "multiprocessing", "socket", "sqlite3", "ssl", "subprocess"}


def _loaded_by(module: str) -> set[str]:
    """The top-level packages that a fresh interpreter loads for one import."""
    probe = [sys.executable, "-c", PROBE.format(module=module)]
    output = subprocess.run(probe, check=True, capture_output=True, text=True).stdout
    return set(cast("list[str]", json.loads(output)))


def test_importing_turnlog_loads_msgspec_and_nothing_else() -> None:
    """A bare `import turnlog` loads no provider, server, database, terminal or async package."""
    loaded = _loaded_by("turnlog")
    assert "turnlog" in loaded
    # msgspec loads typing_extensions where something else has installed it.
    expected = {"turnlog", "msgspec", "typing_extensions"}
    assert loaded - set(sys.stdlib_module_names) <= expected
    assert loaded & HEAVY == set()


def test_importing_the_command_line_loads_no_edge() -> None:
    """`import turnlog.cli` loads nothing that only some commands need."""
    loaded = _loaded_by("turnlog.cli")
    assert "turnlog" in loaded
    drivers = {"apsw", "asyncmy", "asyncpg", "litestar", "uvicorn", "zstandard"}
    others = {"anthropic", "mcp", "openai", "opentelemetry", "xllamacpp"}
    assert loaded & (drivers | others) == set()


def test_a_store_that_nobody_measures_loads_no_telemetry() -> None:
    """`open_store` and what it opens know of OpenTelemetry nothing but a port."""
    loaded = _loaded_by("turnlog.stores.store, turnlog.stores.sqlite, turnlog.telemetry")
    assert "apsw" in loaded
    assert "opentelemetry" not in loaded


def test_the_probe_sees_what_is_loaded() -> None:
    """An import that loads a heavy package is seen to load it."""
    assert {"anyio", "asyncio"} <= _loaded_by("anyio.to_thread, anyio._backends._asyncio")
