"""The generated pages of docs/ are what the commands say of themselves."""

from __future__ import annotations

import importlib.util
from types import ModuleType

from tests.architecture.rules import ROOT


def generator() -> ModuleType:
    """docs/generate.py."""
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_true() -> None:
    """Each generated page is what `make docs` would write now."""
    pages = generator().PAGES
    assert "cli.md" in pages
    for name, page in pages.items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page(), f"make docs: {name}"
