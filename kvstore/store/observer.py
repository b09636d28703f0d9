"""Who is told, for the journal, what the store does."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from corel import MessageId
from kvstore.store.replies import Answer
from kvstore.store.state import Applied


class AppliedMessage(NamedTuple):
    """A green message, what each of its writes did, and the revision after it."""

    id: MessageId
    applied: list[Applied]
    revision: int


class Observer(Protocol):
    """Is told after the fact. It must not call the store, and must not keep what it is given: values are in it."""

    def answered(self, answers: list[tuple[str, Answer]]) -> None:
        """Clients have been given these answers to the writes of these ids."""

    def applied(self, position: int, messages: list[AppliedMessage]) -> None:
        """Green messages, from this position on, have been applied."""
