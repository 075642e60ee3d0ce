"""What the scripts of this folder share: rows, clocks, the peers.

A script measures one thing and prints its rows as JSON lines; `run.py` runs them all. Times are CPU
times of the measuring thread or process where not said otherwise: the machine may be busy with
something else. A peer or floor is measured in the same run, by the same clock, in turn with ours.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PEERS = HERE / ".peers"
#: DeepSeek Harness's session and what it needs, as `peers/README.md` names it.
DSH = (
    "@deepseek-ai/dsh-session@0.1.1-rc.2",
    "@deepseek-ai/dsh-llm@0.1.1-rc.2",
    "@deepseek-ai/dsh-scope@0.1.0-rc.8",
    "@deepseek-ai/dsh-brand@0.1.0-rc.8",
    "@deepseek-ai/dsh-timeout@0.1.0-rc.8",
    "@deepseek-ai/dsh-invariants@0.1.0-rc.8",
    "@deepseek-ai/cordis@4",
)


class Options(NamedTuple):
    """How much to measure: `small` only shows that a script runs; `count` is for R1 and R6.

    `only` names one part of a script that has several.
    """

    small: bool
    count: int | None
    only: str | None = None

    def size(self, full: int, small: int) -> int:
        """The size to measure at."""
        return small if self.small else full


class NoPeer(Exception):
    """A peer cannot be measured here, and why."""


def row(
    number: str, what: str, measured: str, target: str, *, met: bool | None, **detail: Any
) -> dict[str, Any]:
    """One line of the table; `met` None when there is nothing to judge."""
    return {
        "id": number,
        "what": what,
        "measured": measured,
        "target": target,
        "met": met,
        "detail": detail,
    }


def report(measure: Callable[[Options], Iterable[dict[str, Any]]]) -> None:
    """Run a script's measurement and print its rows, one JSON object a line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true", help="only show that it runs")
    parser.add_argument("--count", type=int, help="how many kills or histories")
    parser.add_argument("--only", help="the one part to measure, of a script that has several")
    given = parser.parse_args()
    for line in measure(Options(given.small, given.count, given.only)):
        print(json.dumps(line), flush=True)


# -- places ------------------------------------------------------------------------------------

BUILD = ROOT / "build"


@contextmanager
def scratch() -> Generator[Path]:
    """An empty folder on a disk, for a while: where fsync costs what it costs."""
    place = tempfile.gettempdir()
    if on_disk(Path(place)) is False:
        BUILD.mkdir(exist_ok=True)
        place = str(BUILD)
    with tempfile.TemporaryDirectory(dir=place) as name:
        yield Path(name)


def on_disk(folder: Path) -> bool | None:
    """Whether a folder is on a disk and not in memory; None where that cannot be told."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return None
    kinds = {Path(line.split()[1]): line.split()[2] for line in mounts.read_text().splitlines()}
    found = next((kinds[at] for at in (folder, *folder.parents) if at in kinds), None)
    return None if found is None else found not in ("tmpfs", "ramfs")


def size_of(folder: Path) -> int:
    """The bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# -- clocks ------------------------------------------------------------------------------------


def best(rounds: int, work: Callable[[], object]) -> float:
    """The least CPU seconds of this thread that `work` took."""
    taken: list[float] = []
    for _ in range(rounds):
        gc.collect()
        start = time.thread_time_ns()
        work()
        taken.append((time.thread_time_ns() - start) / 1e9)
    return min(taken)


def median_call(samples: int, before: Callable[[int], object], call: Callable[[], object]) -> float:
    """The median seconds of a call too short for a CPU clock, with `before` ahead of each."""
    taken: list[int] = []
    for i in range(samples):
        before(i)
        start = time.perf_counter_ns()
        call()
        taken.append(time.perf_counter_ns() - start)
    return statistics.median(taken) / 1e9


# -- peers -------------------------------------------------------------------------------------


def shared_peers() -> Path:
    """The folder of the peers' programs.

    Raises:
        NoPeer: it is not here.
    """
    folder = Path(os.environ.get("TURNLOG_SHARED", ROOT.parent / "shared")) / "peers"
    if not folder.is_dir():
        msg = "$TURNLOG_SHARED names no folder with peers/"
        raise NoPeer(msg)
    return folder


def dsh(script: Path, *arguments: str) -> dict[str, Any]:
    """What a Node script that measures DeepSeek Harness's `Session` prints, on a CPU clock.

    Raises:
        NoPeer: it cannot be installed or run here.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        msg = "npm is not installed"
        raise NoPeer(msg)
    if not (PEERS / "node_modules" / "@deepseek-ai" / "dsh-session").is_dir():
        PEERS.mkdir(exist_ok=True)
        (PEERS / "package.json").write_text('{"private": true}\n')
        install = [npm, "install", "--silent", "--no-audit", "--no-fund", "--legacy-peer-deps"]
        made = subprocess.run([*install, *DSH], cwd=PEERS, check=False, capture_output=True)  # noqa: S603
        if made.returncode:
            shutil.rmtree(PEERS / "node_modules", ignore_errors=True)
            msg = "npm could not install DeepSeek Harness's session"
            raise NoPeer(msg)
    clock = HERE / "cpu_clock.mjs"
    command = [node, "--import", str(clock), str(script), *arguments]
    ran = subprocess.run(command, cwd=PEERS, check=True, capture_output=True)  # noqa: S603
    return json.loads(ran.stdout)


def fresh(*arguments: str, **environment: str) -> dict[str, Any]:
    """The JSON that a fresh Python process prints as its last line."""
    env = {**os.environ, **environment}
    command = [sys.executable, *arguments]
    ran = subprocess.run(command, check=False, capture_output=True, env=env, cwd=HERE)  # noqa: S603
    if ran.returncode:
        msg = f"{' '.join(command)}: {ran.stderr.decode()}"
        raise RuntimeError(msg)
    return json.loads(ran.stdout.splitlines()[-1])
