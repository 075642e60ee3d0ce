"""The store as a whole: reading beside a writer, waiting, folders that cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.unit.stores.jsonl_files import HEADER, commit, lines, plain
from turnlog.errors import NoSuchSession, StaleWriter, StoreError
from turnlog.stores.jsonl import JsonlStore
from turnlog.stores.port import Batch
from turnlog.testing.conformance.samples import FIRST, SECOND, assert_same, header, notes


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both event loops."""
    return request.param


async def test_a_waiter_is_not_kept_busy_by_a_torn_tail(tmp_path: Path) -> None:
    """Bytes that are no record yet do not count as an event that may be there."""
    folder = plain(tmp_path, *lines(notes(0, 2)))
    store = JsonlStore(tmp_path)
    await store.open()
    assert await store.next_seq("a") == 2
    with (folder / "1.jsonl").open("ab") as file:
        file.write(lines(notes(2, 1))[0][:-1])
    with anyio.move_on_after(0.0) as scope:
        await store.wait("a", 1, 3600)
    assert scope.cancelled_caught
    with (folder / "1.jsonl").open("ab") as file:
        file.write(b"\n")
    with anyio.fail_after(60):
        await store.wait("a", 1, 3600)
    assert_same(await store.read("a", 2), notes(2, 1))
    await store.close()


async def test_a_waiter_notices_a_takeover(tmp_path: Path) -> None:
    """Events of a new owner's segment wake whoever followed the old one."""
    plain(tmp_path)
    first, second = JsonlStore(tmp_path), JsonlStore(tmp_path)
    await first.open()
    await second.open()
    old = await first.claim("a", FIRST)
    assert await first.commit([Batch(old, notes(0, 1))]) == [None]
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.wait, "a", 0, 3600)
            await anyio.wait_all_tasks_blocked()
            new = await second.claim("a", SECOND, steal=True)
            assert await second.commit([Batch(new, notes(1, 1))]) == [None]
    assert_same(await first.read("a", 0), notes(0, 2))
    (error,) = await first.commit([Batch(old, notes(1, 1))])
    assert isinstance(error, StaleWriter)
    await first.close()
    await second.close()


async def test_a_claim_of_another_handle_is_no_right(tmp_path: Path) -> None:
    """A claim that was released is refused, though its session is free."""
    plain(tmp_path)
    store = JsonlStore(tmp_path)
    await store.open()
    claim = await store.claim("a", FIRST)
    await store.release(claim)
    (error,) = await store.commit([Batch(claim, notes(0, 1))])
    assert isinstance(error, StaleWriter)
    await store.close()


async def test_plain_and_packed_segments_mix(tmp_path: Path) -> None:
    """A store that compresses goes on in a plain segment, and packs those it begins itself."""
    plain_store, packing = JsonlStore(tmp_path), JsonlStore(tmp_path, compress=True)
    await plain_store.open()
    await packing.open()
    await plain_store.create(header("a"))
    claim = await packing.claim("a", FIRST)
    commit(claim.handle, notes(0, 2))
    thief = await packing.claim("a", SECOND, steal=True)
    commit(thief.handle, notes(2, 2))
    third = await plain_store.claim("a", SECOND, steal=True)
    commit(third.handle, notes(4, 1))
    names = {path.name for path in (tmp_path / "a").glob("*.jsonl*")}
    assert names == {"1.jsonl", "2.jsonl.zst", "3.jsonl"}
    assert_same((await packing.load("a")).events, notes(0, 5))
    await plain_store.close()
    await packing.close()


async def test_a_session_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    """What a process left that died while it made a session is no session and no hindrance."""
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "1.jsonl.new").write_bytes(HEADER[:10])
    (folder / "0.lock").write_bytes(b"")
    store = JsonlStore(tmp_path)
    await store.open()
    assert not await store.exists("a")
    with pytest.raises(NoSuchSession):
        await store.claim("a", FIRST)
    assert [info async for info in store.sessions()] == []
    await store.create(header("a"))
    assert (await store.load("a")).header == header("a")
    await store.close()


async def test_a_store_that_is_a_file_is_named(tmp_path: Path) -> None:
    """A path that is no folder gives one line, with the path."""
    (tmp_path / "file").write_text("x")
    store = JsonlStore(tmp_path / "file")
    with pytest.raises(StoreError, match="file"):
        await store.open()


READ_ONLY = """
import os, sys, anyio
from pathlib import Path
from turnlog.errors import StoreError
from turnlog.stores.jsonl import JsonlStore
from turnlog.testing.conformance.samples import FIRST, header

async def main():
    if os.getuid() == 0:
        os.setuid(65534)  # once all modules are loaded
    store = JsonlStore(Path("store"))
    await store.open()
    stored = await store.load("a")
    print(len(stored.events), await store.next_seq("a"), await store.inbox("a"))
    print([info.events async for info in store.sessions()], await store.pending())
    await store.wait("a", 0, 0.0)
    for call in (store.claim("a", FIRST), store.create(header("b"))):
        try:
            await call
        except StoreError as error:
            print("refused:", "denied" in str(error) or "Read-only" in str(error))
    await store.close()

os.chdir(sys.argv[1])
anyio.run(main)
"""


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no such permissions on this system")
def test_a_read_only_folder_opens_for_reading(tmp_path: Path) -> None:
    """Where nothing can be written everything can be read, and writing is refused in one line."""
    root = tmp_path / "store"
    root.mkdir()
    folder = plain(root, *lines(notes(0, 3)))
    (folder / "1.jsonl").chmod(0o444)
    folder.chmod(0o555)
    root.chmod(0o555)
    tmp_path.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", READ_ONLY, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "3 3 []",
        "[3] []",
        "refused: True",
        "refused: True",
    ]
