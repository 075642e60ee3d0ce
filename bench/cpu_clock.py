"""Runs a peer's Python script with the CPU clock of its process as `time.perf_counter`.

python cpu_clock.py SCRIPT ARGUMENT…
"""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path

time.perf_counter = time.process_time
sys.argv = sys.argv[1:]
sys.path[0] = str(Path(sys.argv[0]).parent)
runpy.run_path(sys.argv[0], run_name="__main__")
