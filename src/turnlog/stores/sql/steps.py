"""Algorithms that ask for what they need to read, so that a database may answer, or be awaited.

They are generators: each value that they yield is a question, and what is sent is its answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Result = TypeVar("Result")


def run(steps: Generator[Question, Answer, Result], answer: Callable[[Question], Answer]) -> Result:
    """What steps come to."""
    try:
        question = next(steps)
        while True:
            question = steps.send(answer(question))
    except StopIteration as done:
        return done.value


async def run_async(
    steps: Generator[Question, Answer, Result], answer: Callable[[Question], Awaitable[Answer]]
) -> Result:
    """What steps come to, where each answer is awaited."""
    try:
        question = next(steps)
        while True:
            question = steps.send(await answer(question))
    except StopIteration as done:
        return done.value
