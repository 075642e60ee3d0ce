"""The agent of the workers that `fleet` kills, by the name of `tests.crash.worker_agent:make`.

Its tools append their tokens to the file that TURNLOG_EFFECTS names.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import SystemRandom

from tests.crash.agent_child import make_agent
from turnlog import ReactLoopAgent

EFFECTS = "TURNLOG_EFFECTS"


def make() -> ReactLoopAgent:
    """One for each turn: it answers at random, and always comes to an answer in the end."""
    return make_agent(Path(os.environ[EFFECTS]), SystemRandom().randrange(2**31), max_steps=100)
