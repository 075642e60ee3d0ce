"""The only place of the core that reads the clock and makes random ids; both can be injected."""

from __future__ import annotations

import time
import uuid


def clock() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000


def new_id() -> str:
    """A random id that sorts by its time of creation (48 bits of milliseconds, 80 random bits)."""
    return f"{clock():012x}{uuid.uuid4().hex[:20]}"
