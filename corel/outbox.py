"""Own messages until every member has them: numbered when they are accepted, sent in that order, and sent again in
the next view if theirs ended before they had left. So a stream has no gaps, and no number is used twice. How many
are in flight is bounded by what every member has on disk: the slowest disk sets the pace, and no member's memory
fills."""

from __future__ import annotations

from collections import deque

from corel.config import CorelConfig
from corel.messages import MessageId, Regular, Stream


class TooMuch(Exception):
    """Too many messages wait to be sent. Try again later."""


class TooLarge(Exception):
    """The body exceeds `body_bytes_max`."""


class Outbox:
    """The messages of this node's stream that have not left, or that not every member has logged."""

    def __init__(self, stream: Stream, config: CorelConfig) -> None:
        self._stream = stream
        self._config = config
        self._last = 0
        self._waiting: deque[Regular] = deque()
        self._waiting_bytes = 0
        self._sent: deque[Regular] = deque()
        """Messages handed to the transport that are not known to have left."""
        self._sent_bytes = 0
        self._unlogged: deque[tuple[int, int]] = deque()
        """The transport's sequence and the size of each message that has left and that not every member has
        logged."""
        self._unlogged_bytes = 0

    def __len__(self) -> int:
        """Returns how many messages have not left."""
        return len(self._waiting) + len(self._sent)

    def accept(self, body: bytes) -> MessageId:
        """Numbers a message and queues it, or raises `TooLarge` or `TooMuch`."""
        config = self._config
        if len(body) > config.body_bytes_max:
            raise TooLarge(f"{len(body)} bytes; at most {config.body_bytes_max} fit a message of the log")
        if len(self._waiting) >= config.submitted_max or self._waiting_bytes >= config.submitted_bytes_max:
            raise TooMuch(f"{len(self._waiting)} messages wait to be sent")
        self._last += 1
        self._waiting.append(Regular(self._last, body))
        self._waiting_bytes += len(body)
        return MessageId(self._stream, self._last)

    def take(self) -> list[Regular]:
        """Returns the messages that are to be handed to the transport now."""
        taken: list[Regular] = []
        while self._waiting and not self._is_full() and not self.waits_for_disks:
            regular = self._waiting.popleft()
            self._waiting_bytes -= len(regular.body)
            self._sent.append(regular)
            self._sent_bytes += len(regular.body)
            taken.append(regular)
        return taken

    def _is_full(self) -> bool:
        """Returns whether messages that were handed over must leave before more may follow. One is always
        allowed."""
        config = self._config
        return len(self._sent) >= config.outstanding_max or (
            bool(self._sent) and self._sent_bytes >= config.outstanding_bytes_max
        )

    @property
    def waits_for_disks(self) -> bool:
        """Whether every member must log what is in flight before more may leave."""
        config = self._config
        under_way = len(self._sent) + len(self._unlogged)
        return under_way >= config.unlogged_max or (
            under_way > 0 and self._sent_bytes + self._unlogged_bytes >= config.unlogged_bytes_max
        )

    def has_left(self, sequence: int) -> None:
        """Notes that the first of the messages handed over has left, as the transport's message of this
        sequence."""
        size = len(self._sent.popleft().body)
        self._sent_bytes -= size
        self._unlogged.append((sequence, size))
        self._unlogged_bytes += size

    def logged_by_all(self, sequence: int) -> None:
        """Notes that every member has logged what has left up to this sequence."""
        while self._unlogged and self._unlogged[0][0] <= sequence:
            self._unlogged_bytes -= self._unlogged.popleft()[1]

    def take_back(self) -> None:
        """Ends the view: what has not left waits for the next one."""
        self._waiting.extendleft(reversed(self._sent))
        self._waiting_bytes += self._sent_bytes
        self._sent.clear()
        self._unlogged.clear()
        self._sent_bytes = self._unlogged_bytes = 0
