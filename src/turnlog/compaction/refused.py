"""Content that a provider refuses to take: found by what it says, and left out from then on.

One image too wide or broken makes a provider refuse every request that has it. It becomes a note on
the surface; the original stays in the log. Which one is meant, an answer may say by its place in
the request; it may also blame the wrong one, so the next refusal leaves out all that are older.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from turnlog import jsontext
from turnlog.compaction.media import elide_images
from turnlog.compaction.meter import METER
from turnlog.compaction.ranges import closed
from turnlog.content import Failure, Image
from turnlog.errors import ContextOverflow, ModelError, RequestRefused
from turnlog.events import Replace

if TYPE_CHECKING:
    from turnlog.session import Session

_MEDIA: Final = re.compile(r"\b(images?|media|picture)\b|image_url", re.IGNORECASE)
_PLACE: Final = re.compile(
    r"messages?[\s.\[]{1,2}(\d+)\]?[\s.,:]{1,3}(?:content|part|block)[\s.\[]{1,2}(\d+)",
    re.IGNORECASE,
)


class Refused:
    """What was refused in one step, and what was done about it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tries = 0  # 1: what was blamed is left out; 2: all that may be
        self._blamed: frozenset[str] | None = None  # what the step failed of at last
        self._taken: tuple[int, ...] = ()  # what nobody had blamed

    def leave_out(self, error: ModelError, body: bytes) -> bool:
        """Leave out of the next request what was refused; whether there is another one to try.

        What belongs to the open step stays until it has ended: it is what is asked about.

        Args:
            error: what the provider says; `is_about_media`.
            body: the request that it refused.
        """
        blamed = frozenset(blamed_images(error.failure, body))
        nodes = closed(self._session, self._session.fold(METER).open_step)
        if self._tries == 0 and self._elide(nodes, blamed):
            self._tries = 1
            return True
        if self._tries < 2:
            self._tries = 2
            self._taken = elide_images(self._session, nodes)
            if self._taken:
                return True
        self._blamed = blamed
        return False

    def settle(self) -> None:
        """If the step has failed of it all the same: leave out what it kept until now.

        When that is what was blamed, the others are innocent and come back.
        """
        nodes = self._session.surface.seqs
        if self._blamed is None:
            return
        if not self._elide(nodes, self._blamed):
            elide_images(self._session, nodes)
            return
        for seq in self._taken:
            self._put_back(seq)

    def _put_back(self, seq: int) -> None:
        session = self._session
        note, event = session.surface.shadowed_by(seq), session.event_at(seq)
        if note is None or note not in session.surface:
            return
        append: Any = session.append  # any type: what the overloads would tell apart
        append(event.type, event.data, surface_op=Replace(note, note), source_event_seqs=[note])

    def _elide(self, nodes: Iterable[int], blamed: frozenset[str]) -> tuple[int, ...]:
        return elide_images(
            self._session, nodes, which=lambda image: not blamed.isdisjoint(_told(image))
        )


def is_about_media(error: ModelError) -> bool:
    """Whether a request was refused for an image in it."""
    if isinstance(error, ContextOverflow):
        return error.kind == "media"
    if not isinstance(error, RequestRefused) or error.failure.code != "refused":
        return False
    return _MEDIA.search(error.failure.message) is not None


def blamed_images(failure: Failure, body: bytes) -> Iterator[str]:
    """The images at the place of a request that a failure names: their data, or addresses."""
    param = (failure.extra or {}).get("param")
    found = _PLACE.search(f"{param} {failure.message}")
    if found is None:
        return
    at: Any = jsontext.decode(body)
    for step in ("messages", int(found[1]), "content", int(found[2])):
        try:
            at = at[step]
        except (KeyError, IndexError, TypeError):
            return
    yield from _images(at)


def _images(wire: Any) -> Iterator[str]:
    """The images in a content block of any dialect, and in the blocks within it."""
    match wire:
        case {"type": "image", "source": {"data": str(data)}}:
            yield data
        case {"type": "image", "source": {"url": str(url)}}:
            yield url
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            yield url.partition(";base64,")[2] or url
        case {"content": [*blocks]}:
            for block in blocks:
                yield from _images(block)
        case _:
            pass


def _told(image: Image) -> frozenset[str]:
    return frozenset(told for told in (image.data, image.url) if told)
