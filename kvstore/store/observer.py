"""Who is told, for the journal, what the store does."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

from corel import MessageId
from kvstore.store.replies import Answer
from kvstore.store.state import Applied


class AppliedMessage(NamedTuple):
    """A green message, what each of its writes did, and the revision after it."""

    id: MessageId
    applied: list[Applied]
    revision: int


Answered: TypeAlias = tuple[MessageId, int, Answer]
"""The answer to the write at this place in a message."""


class Observer(Protocol):
    """Is told after the fact. It must not call the store, and must not keep what it is given: values are in it."""

    def answered(self, answers: list[Answered]) -> None:
        """Clients have been given these answers."""

    def applied(self, position: int, messages: list[AppliedMessage]) -> None:
        """Green messages, from this position on, have been applied."""
