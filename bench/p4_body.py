"""P4: the encoded body of the next request of a long history, against one copy of it in memory."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from histories import add, history
from measure import Options, best, report, row

from turnlog.dialects import ENCODERS, encoder
from turnlog.events import Header, ModelConfig, ToolSchema

TOOL = ToolSchema("read_file", "Reads a file.", {"type": "object", "properties": {}})
ROUNDS = 7


def measure(options: Options) -> Iterator[dict[str, Any]]:
    """One row for each dialect."""
    n = options.size(100_000, 90)
    session = history(n - n % 3)
    for name in ENCODERS:
        tools = None if name.startswith("plain") else (TOOL,)
        header = Header(ModelConfig(name.partition("@")[0], "m"), "You help.", tools)
        encoders = encoder(name).incremental()
        encoded = encoders.encode(header, session.request_messages())
        times: list[tuple[float, float, float, float]] = []
        for _ in range(ROUNDS):
            for _ in range(3):
                add(session, len(session))  # a whole round: its call is answered
            kept: list[Any] = []

            def following() -> None:
                kept.append(encoders.encode(header, session.request_messages()))  # noqa: B023

            segments = best(1, following)
            encoded = kept[0]
            whole = memoryview(encoded.to_bytes())  # held, so that both find memory as it is
            joined = best(3, encoded.to_bytes)
            copied = best(3, whole.tobytes)
            del whole
            digested = best(1, lambda: encoded.digest)  # noqa: B023
            times.append((segments, segments + joined, copied, digested))
        columns = zip(*times, strict=True)
        segments, joined, copied, digested = (statistics.median(c) * 1e3 for c in columns)
        anew = best(1, lambda: encoder(name).encode(header, session.request_messages())) * 1e3  # noqa: B023
        hashed = best(3, lambda: sha256(encoded.to_bytes())) * 1e3  # noqa: B023
        ratio = joined / copied
        yield row(
            "P4",
            f"next body, {name}, n = {n:,}",
            f"{joined:.1f} ms in one piece, a copy of its {len(encoded) / 1e6:.0f} MB "
            f"{copied:.1f} ms: {ratio:.2f}x; as segments {segments:.2f} ms",
            "1.5x",
            met=ratio <= 1.5,
            joined_ms=joined,
            segments_ms=segments,
            copy_ms=copied,
            digest_ms=digested,
            digest_anew_ms=hashed,
            encode_anew_ms=anew,
            bytes=len(encoded),
        )


if __name__ == "__main__":
    report(measure)
