"""The model that docs/models.md shows how to write is one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.architecture.rules import ROOT
from tests.unit.docs.test_examples import blocks
from turnlog.models.port import Model
from turnlog.testing import ModelConformance


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both: models work on either."""
    return request.param


class TestBackwards(ModelConformance):
    """The page's own model."""

    body = b'{"messages": [{"role": "user", "content": "one two"}]}'

    @asynccontextmanager
    async def factory(self) -> AsyncGenerator[Model]:
        """As the page defines it."""
        (block,) = (b for b in blocks("docs/models.md", "python") if "class Backwards" in b.text)
        source, _, _ = block.text.partition("\nsession = ")
        namespace: dict[str, Any] = {}
        exec(compile(source, ROOT / "docs/models.md", "exec"), namespace)  # noqa: S102 - our page
        yield namespace["Backwards"]()
