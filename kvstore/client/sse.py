"""Server-Sent Events, taken apart as the HTML standard says, from bytes in any pieces."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

LINE_BYTES_MAX = 64 * 1_048_576
"""The longest line that is taken: more than the largest transaction with its previous values, as base64."""


class StreamError(Exception):
    """The stream is not one of a node."""


@dataclass(frozen=True, slots=True)
class Message:
    """What ended with an empty line. Without data it is only a place to resume from."""

    id: str | None
    """The `id:` of this message itself; `None` if it has none."""
    name: str
    data: str


class Parser:
    """Feed it bytes; it returns the messages that they complete. What a broken connection leaves incomplete is
    not a message: an id counts only together with the empty line after it."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        """The pieces of a line that is not complete yet. They are joined once, when it is."""
        self._rest_bytes = 0
        self._id: str | None = None
        self._name = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> Iterator[Message]:
        self._rest.append(data)
        self._rest_bytes += len(data)
        if self._rest_bytes - len(data) > LINE_BYTES_MAX:
            raise StreamError(f"a line of more than {LINE_BYTES_MAX:,} bytes")
        if not _LINE_END.search(b"".join(self._rest[-2:])):
            return
        *lines, rest = _LINE_END.split(b"".join(self._rest))
        self._rest, self._rest_bytes = [rest], len(rest)
        for line in lines:
            message = self._take(line.decode("utf-8", "replace"))
            if message is not None:
                yield message

    def _take(self, line: str) -> Message | None:
        if not line:
            found = Message(self._id, self._name or "message", "\n".join(self._data))
            is_empty = self._id is None and not self._data
            self._id, self._name, self._data = None, "", []
            return None if is_empty else found
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "id" and "\x00" not in value:
            self._id = value
        elif name == "event":
            self._name = value
        return None  # comments and unknown fields say nothing


_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")
"""A carriage return at the end of what has arrived may be half of a line's end: it waits for what follows."""
