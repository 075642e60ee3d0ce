"""Copies a store, `copy_child.py FROM TO`; tells of each page, and waits for a byte on stdin."""

from __future__ import annotations

import os
import sys

import anyio

from turnlog.stores import copying, open_store


def step(progress: copying.CopyProgress) -> None:
    """One line to the parent, at once and whole; then its answer."""
    os.write(1, f"{progress.id} {progress.seq}\n".encode())
    os.read(0, 1)


async def main(source: str, target: str) -> None:
    """Copy all sessions, a few events at a time."""
    copying.PAGE = 20
    async with open_store(source) as mine, open_store(target) as other:
        await mine.copy_to(other, on_progress=step)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2])
