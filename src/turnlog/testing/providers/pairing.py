"""Matching of tool calls and results: one result a call, at once and in order."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from turnlog.testing.providers.report import shown
from turnlog.testing.providers.rules import Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnlog.testing.providers.report import Report


class Pairing:
    """Matches the results of a conversation with its calls, message by message.

    Each message that is no result goes to `begin`, with the calls it makes as pairs of id and path;
    each result to `result`; `close` ends the conversation. An id used again in a later message is
    another call. With `ordered`, results must come in call order.
    """

    def __init__(self, report: Report, *, ordered: bool) -> None:
        self._report = report
        self._ordered = ordered
        self._calls: Sequence[tuple[str, str]] = ()
        self._results: list[tuple[str, str]] = []
        self._unanswered: defaultdict[str, list[str]] = defaultdict(list)
        self._answered: set[str] = set()

    def begin(self, calls: Sequence[tuple[str, str]]) -> None:
        """Take a message that is no result: whatever is called here is to be answered next."""
        self._settle()
        self._calls = calls
        self._results = []

    def result(self, call_id: object, where: str) -> None:
        """Take a result for `call_id`."""
        if isinstance(call_id, str) and call_id:
            self._results.append((call_id, where))
        else:
            message = f"expected the id of a call, got {shown(call_id)}"
            self._report.add(Rule.RESULT_CALL_ID_MISSING, where, message)

    def close(self) -> None:
        """End the conversation and record the calls that nothing answered."""
        self.begin(())
        for call_id, places in self._unanswered.items():
            for where in places:
                message = f"call {call_id!r} has no result"
                self._report.add(Rule.CALL_WITHOUT_RESULT, where, message)

    def _settle(self) -> None:
        open_here = Counter(call_id for call_id, _ in self._calls)
        matched: list[str] = []
        last = ""
        for call_id, where in self._results:
            if open_here[call_id] > 0:
                open_here[call_id] -= 1
                matched.append(call_id)
                last = where
            else:
                self._stray(call_id, where, repeated=call_id in matched)
        in_order: list[str] = []
        due = Counter(matched)
        for call_id, where in self._calls:
            if due[call_id] > 0:
                due[call_id] -= 1
                in_order.append(call_id)
            else:
                self._unanswered[call_id].append(where)
        if self._ordered and matched != in_order:
            message = f"expected the order of the calls {in_order}, got {matched}"
            self._report.add(Rule.RESULT_OUT_OF_ORDER, last, message)
        self._answered.update(matched)

    def _stray(self, call_id: str, where: str, *, repeated: bool) -> None:
        if repeated:
            self._report.add(Rule.RESULT_REPEATED, where, f"call {call_id!r} has a result")
        elif self._unanswered[call_id]:
            self._unanswered[call_id].pop(0)
            self._answered.add(call_id)
            message = f"the result of {call_id!r} does not follow its call's message at once"
            self._report.add(Rule.RESULT_NOT_ADJACENT, where, message)
        elif call_id in self._answered:
            self._report.add(Rule.RESULT_REPEATED, where, f"call {call_id!r} has a result")
        else:
            message = f"no earlier message calls {call_id!r}"
            self._report.add(Rule.RESULT_WITHOUT_CALL, where, message)
