"""What waits and is free, on stores that know who owns a session."""

from __future__ import annotations

from pathlib import Path

import pytest

import turnlog
from tests.store_urls import SERVERS, forget, url_of
from turnlog import Prompt

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", ["memory", "sqlite", *SERVERS])
async def test_what_others_own_is_left_out_on_request(name: str, tmp_path: Path) -> None:
    """Whichever handle owns it, this one too; the rest comes in its order."""
    url = url_of(name, tmp_path)
    async with turnlog.open_store(url) as store, turnlog.open_store(url) as other:
        for session_id in ("c", "mine", "a", "theirs", "b"):
            await store.inbox(session_id).post(Prompt("x"), create=True)
        async with store.session("mine"), other.session("theirs"):
            assert await store.pending(only_free=True) == ["c", "a", "b"]
            assert await other.pending(only_free=True) == ["c", "a", "b"]
            everything = ["c", "mine", "a", "theirs", "b"]
            assert await store.pending() == everything
        assert await store.pending(only_free=True) == everything
    forget(tmp_path)
