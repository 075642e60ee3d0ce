"""docs/log-format.md in plain Python: a session's folder or an exported file, read."""

import json
import sys
from itertools import accumulate
from pathlib import Path


def read(path: Path) -> tuple[dict, list[dict]]:
    """The header, and the events in wire form, runs and ranges unpacked."""
    header, events = {}, []
    for segment in segments(path) if path.is_dir() else [path.read_bytes()]:
        for line in filter(None, lines(segment)):
            try:
                wire = json.loads(line.decode())
            except ValueError:
                continue  # damage: the seqs that are missing tell how much was lost
            if "type" in wire or "run" in wire:
                events += [e for e in unpack(wire) if not events or e["seq"] > events[-1]["seq"]]
            elif wire.get("format") == "turnlog" and not wire.get("version"):
                header = wire  # a later one takes its place
    return header, events


def segments(folder: Path) -> list[bytes]:
    """What counts of each segment, first to last."""
    kinds = ("[1-9]*.jsonl.zst", "[1-9]*.jsonl")  # where both are there, the plain one counts
    files = {int(f.name.split(".")[0]): f.read_bytes() for k in kinds for f in folder.glob(k)}
    token, size, chain = max(t for t, data in files.items() if lines(data)), None, []
    while token:
        chain.insert(0, files[token][:size])
        after = json.loads(lines(chain[0])[0]).get("after", {})
        token, size = after.get("token"), after.get("bytes")
    return chain


def lines(data: bytes) -> list[bytes]:
    """The complete lines: what follows the last line feed or whole frame is torn."""
    text = b""
    while data[:4] == b"\x28\xb5\x2f\xfd":
        frame = __import__("zstandard").ZstdDecompressor().decompressobj()
        text, data = text + frame.decompress(data) * frame.eof, frame.unused_data
    return (text or data).split(b"\n")[:-1]


def unpack(wire: dict) -> list[dict]:
    """The event of a line, or the events of a packed run."""
    if "type" in wire:
        pairs = [s if isinstance(s, list) else [s, s] for s in wire.get("sourceEventSeqs", ())]
        cited = {"sourceEventSeqs": [s for first, last in pairs for s in range(first, last + 1)]}
        return [{**wire, **cited} if "sourceEventSeqs" in wire else wire]
    data, start, times = wire["data"], wire["seq"], accumulate([wire["time"], *wire["dt"]])
    said = [{**data, "chunk": {**data["chunk"], wire["field"]: value}} for value in wire["values"]]
    members = enumerate(zip(times, said, strict=True), start)
    return [{"type": wire["run"], "seq": s, "time": t, "data": d} for s, (t, d) in members]


if __name__ == "__main__":
    head, log = read(Path(sys.argv[1]))
    print(*map(json.dumps, [head, *log]), sep="\n")
