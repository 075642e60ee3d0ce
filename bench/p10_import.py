"""P10: what `import turnlog` costs and loads, and `turnlog --help`; whole processes, no warm-up."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measure import Options, fresh, report, row

ROUNDS = 9
PROBE = """
import json, resource, sys
{statement}
used = resource.getrusage(resource.RUSAGE_SELF)
status = open("/proc/self/status").read()  # ru_maxrss would count the parent's memory
peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
loaded = sorted({{name.partition(".")[0] for name in sys.modules}})
print(json.dumps({{"cpu": used.ru_utime + used.ru_stime, "rss": peak, "loaded": loaded}}))
"""
#: Of providers, servers and databases, and what they stand on.
HEAVY = {
    "aiomysql", "anthropic", "apsw", "asyncio", "asyncmy", "asyncpg", "httpx", "httpx2", "litestar",
    "mcp", "openai", "pydantic", "sqlite3", "ssl", "starlette", "tiktoken", "uvicorn", "xllamacpp",
}  # fmt: skip


def probe(statement: str) -> tuple[float, float, set[str]]:
    """CPU seconds and MB of a process that runs a statement, and the packages it has loaded."""
    found = fresh("-c", PROBE.format(statement=statement))
    return found["cpu"], found["rss"], set(found["loaded"])


def help_page() -> tuple[float, float]:
    """Seconds on the clock, and of the CPU, that `turnlog --help` takes."""
    command = Path(sys.executable).with_name("turnlog")
    before, start = os.times(), time.perf_counter()
    subprocess.run([str(command), "--help"], check=True, capture_output=True)  # noqa: S603
    wall, after = time.perf_counter() - start, os.times()
    cpu = after.children_user + after.children_system
    return wall, cpu - before.children_user - before.children_system


def measure(options: Options) -> Iterator[dict[str, Any]]:
    """Rows of P10."""
    rounds = 1 if options.small else ROUNDS
    if not Path("/proc/self/status").exists():
        yield row("P10", "import turnlog", "no /proc here", "0.15 s", met=None)
        return
    ours = [probe("import turnlog") for _ in range(rounds)]
    bare = [probe("pass") for _ in range(rounds)]
    cpu, rss = min(one[0] for one in ours), min(one[1] for one in ours)
    heavy = sorted(ours[0][2] & HEAVY)
    yield row(
        "P10",
        "import turnlog, the whole process",
        f"{cpu:.3f} s CPU (bare Python {min(one[0] for one in bare):.3f} s)",
        "0.15 s CPU",
        met=cpu <= 0.15,
        cpu=cpu,
    )
    yield row(
        "P10",
        "… its memory",
        f"{rss:.1f} MB RSS (bare Python {min(one[1] for one in bare):.1f} MB)",
        "30 MB",
        met=rss <= 30,
        rss=rss,
    )
    yield row(
        "P10",
        "… provider, server or database packages loaded",
        ", ".join(heavy) or "none",
        "none",
        met=not heavy,
        loaded=sorted(ours[0][2] - bare[0][2]),
    )
    pages = [help_page() for _ in range(rounds)]
    wall, used = min(one[0] for one in pages), min(one[1] for one in pages)
    yield row(
        "P10",
        "turnlog --help",
        f"{wall:.2f} s, {used:.2f} s CPU",
        "0.3 s",
        met=wall <= 0.3,
        wall=wall,
        cpu=used,
    )


if __name__ == "__main__":
    report(measure)
