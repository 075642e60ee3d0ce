"""Stores that search wrongly in one way each; as those in `broken`, whose table they enter."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from tests.conformance.broken import Broken, fails
from turnlog.errors import NoSuchSession, StoreError
from turnlog.stores.phrases import Phrase
from turnlog.stores.scanning import scan
from turnlog.stores.searching import Hit, Search


class Searches(Broken):
    """Base of those; not broken itself."""

    async def search(self, wanted: Search) -> list[Hit]:
        """Search as any store without an index."""
        return await scan(self, wanted)

    async def ask_for(self, wanted: Search, phrases: Iterable[Phrase]) -> list[Hit]:
        """Search for something else."""
        return await scan(self, wanted._replace(phrases=tuple(phrases)))


@fails("test_words_are_found")
class MatchesAsWritten(Searches):
    """Marks no matches that are not ASCII."""

    async def search(self, wanted: Search) -> list[Hit]:
        """The hits, without matches where a snippet is not ASCII."""
        hits = await super().search(wanted)
        return [hit if hit.snippet.isascii() else replace(hit, matches=()) for hit in hits]


@fails("test_all_words_must_occur")
class LooksForTheLastWord(Searches):
    """Looks for the last word only."""

    async def search(self, wanted: Search) -> list[Hit]:
        """What holds the last of the phrases."""
        return await self.ask_for(wanted, wanted.phrases[-1:])


@fails("test_a_phrase_is_words_in_a_row")
class TakesPhrasesApart(Searches):
    """Looks for the words of a phrase anywhere, where they are words."""

    async def search(self, wanted: Search) -> list[Hit]:
        """What holds the terms of the phrases."""
        return await self.ask_for(
            wanted,
            [
                part
                for phrase in wanted.phrases
                for part in (
                    [Phrase((term,)) for term in phrase.terms]
                    if "".join(phrase.terms).isascii() and not phrase.prefix
                    else [phrase]
                )
            ],
        )


@fails("test_a_star_asks_for_a_beginning")
class LooksForBeginnings(Searches):
    """Takes every word for the beginning of one."""

    async def search(self, wanted: Search) -> list[Hit]:
        """What holds words that begin so."""
        return await self.ask_for(wanted, [p._replace(prefix=True) for p in wanted.phrases])


@fails("test_scripts_without_spaces")
class LooksForWholeWords(Searches):
    """Finds no lone character."""

    async def search(self, wanted: Search) -> list[Hit]:
        """The hits, unless a character is looked for."""
        alone = any(len(phrase.terms[-1]) == 1 and phrase.prefix for phrase in wanted.phrases)
        return [] if alone else await super().search(wanted)


@fails("test_tools_and_context_are_found_when_asked_for")
class SearchesAll(Searches):
    """Looks everywhere, asked for or not."""

    async def search(self, wanted: Search) -> list[Hit]:
        """What holds the words anywhere."""
        return await super().search(wanted._replace(tools=True, context=True))


@fails("test_what_was_compacted_is_found_and_marked")
class MarksNothing(Searches):
    """Does not say what the model sees instead."""

    async def search(self, wanted: Search) -> list[Hit]:
        """The hits, unmarked."""
        return [replace(hit, shadowed_by=None) for hit in await super().search(wanted)]


@fails("test_a_fork_is_searched_without_what_it_inherited")
class SearchesEachSession(Searches):
    """Searches each session by itself, with all it inherited."""

    async def search(self, wanted: Search) -> list[Hit]:
        """The hits of the sessions, one after the other."""
        if wanted.session is not None or len(self._storage.sessions) < 2:
            return await super().search(wanted)
        hits: list[Hit] = []
        for session_id in self._storage.sessions:
            hits += await super().search(wanted._replace(session=session_id))
        return hits


@fails("test_the_best_come_first_page_by_page")
class StaysOnTheFirstPage(Searches):
    """Gives the best hits, whatever is to be skipped."""

    async def search(self, wanted: Search) -> list[Hit]:
        """The first page."""
        return await super().search(wanted._replace(skip=0))


@fails("test_what_was_said_since_is_found")
class RemembersAnswers(Searches):
    """Gives the same answer to the same question."""

    async def search(self, wanted: Search) -> list[Hit]:
        """What was found the first time."""
        key = str(wanted)
        if key not in self.notes:
            self.notes[key] = await super().search(wanted)
        return self.notes[key]


@fails("test_queries_and_texts_may_hold_anything")
class KnowsOperators(Searches):
    """Takes a word for an operator."""

    async def search(self, wanted: Search) -> list[Hit]:
        """The hits, unless a word is NEAR."""
        if any("near" in phrase.terms for phrase in wanted.phrases):
            raise StoreError("fts5: syntax error")
        return await super().search(wanted)


@fails("test_searching_in_no_session")
class FindsNothingNowhere(Searches):
    """Takes a session that does not exist for an empty one."""

    async def search(self, wanted: Search) -> list[Hit]:
        """The hits; none where there is nothing to search in."""
        try:
            return await super().search(wanted)
        except NoSuchSession:
            return []
