"""What the loop adds to a step: a turn of tool steps against bare calls to the same server.

The bare calls send the same bytes with the same HTTP client and read the stream to its end. Time is
the CPU's, of this process; on disk the clock's is shown too, since flushing is waiting.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from typing import Any

import anyio
import httpx2
from measure import Options, report, row
from serving import chat_server

from turnlog import Session, open_store
from turnlog.agent.loop import ReactLoopAgent
from turnlog.models.openai import OpenAIModel
from turnlog.models.port import Body, to_bytes

CALLS = 30
ROUNDS = 5


def noop() -> str:
    """Do nothing."""
    return "ok"


class Recording(OpenAIModel):
    """The model, which keeps the bodies it sends."""

    bodies: list[bytes]

    def stream(self, body: Body) -> Any:
        """As ever."""
        self.bodies.append(to_bytes(body))
        return super().stream(body)


async def bare(url: str, bodies: list[bytes]) -> tuple[float, float]:
    """Seconds of CPU and clock to send the bodies and read the answers."""
    headers = {"content-type": "application/json", "accept": "text/event-stream"}
    async with httpx2.AsyncClient(trust_env=False) as client:
        await _call(client, url, bodies[0], headers)
        cpu, clock = time.process_time(), time.perf_counter()
        for body in bodies:
            await _call(client, url, body, headers)
        return time.process_time() - cpu, time.perf_counter() - clock


async def _call(client: httpx2.AsyncClient, url: str, body: bytes, headers: dict[str, str]) -> None:
    async with client.stream(
        "POST", f"{url}/chat/completions", content=body, headers=headers
    ) as answer:
        async for _ in answer.aiter_bytes():
            pass


async def loop(session: Session, url: str, warm: int) -> tuple[float, float, list[bytes]]:
    """Seconds of CPU and clock that a turn takes, and the bodies it sent."""
    model = Recording("openai-compatible", "m", url)
    model.bodies = []
    agent = ReactLoopAgent(model, tools=[noop], max_steps=warm + 1)
    async with model.connected():
        await agent.run(session, "Go.")
        model.bodies.clear()
        cpu, clock = time.process_time(), time.perf_counter()
        await agent.run(session, "Go.")
        return time.process_time() - cpu, time.perf_counter() - clock, model.bodies


async def one_round(calls: int) -> dict[str, tuple[float, float]]:
    """Milliseconds a step, CPU and clock, of each way."""
    found: dict[str, tuple[float, float]] = {}
    with chat_server(calls) as server:
        cpu, clock, bodies = await loop(Session.create("s"), server.url, calls)
        steps = len(bodies)
        found["memory"] = cpu / steps * 1e3, clock / steps * 1e3
        with tempfile.TemporaryDirectory() as folder:
            async with open_store(f"jsonl:{folder}") as store, store.session("s") as session:
                cpu, clock, _ = await loop(session, server.url, calls)
                found["JSONL"] = cpu / steps * 1e3, clock / steps * 1e3
        cpu, clock = await bare(server.url, bodies)
        found["bare"] = cpu / steps * 1e3, clock / steps * 1e3
    return found


def measure(options: Options) -> Iterator[dict[str, Any]]:
    """One row for each store."""
    calls, rounds = options.size(CALLS, 2), options.size(ROUNDS, 1)
    found = [anyio.run(one_round, calls) for _ in range(rounds)]
    least = {way: tuple(min(one[way][i] for one in found) for i in (0, 1)) for way in found[0]}
    for store in ("memory", "JSONL"):
        cpu, clock = least[store]
        extra = cpu - least["bare"][0]
        yield row(
            "loop",
            f"a step with a tool call, session in {store}",
            f"{cpu:.2f} ms CPU, {clock:.2f} ms; a bare call {least['bare'][0]:.2f} ms CPU, "
            f"{least['bare'][1]:.2f} ms: +{extra:.2f} ms CPU",
            "told",
            met=None,
            cpu_ms=cpu,
            ms=clock,
            bare_cpu_ms=least["bare"][0],
            bare_ms=least["bare"][1],
        )


if __name__ == "__main__":
    report(measure)
