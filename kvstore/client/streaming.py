"""A whole list as one stream (NDJSON), as steps. It is of one revision from beginning to end: when its node fails,
stops or breaks off, the rest of the same revision is asked for elsewhere, after the last key that has arrived."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from kvstore.client.calls import Calls, RangeOptions, range_request
from kvstore.client.decoding import decoded, list_item
from kvstore.client.errors import Compacted, Happened, Unavailable
from kvstore.client.replies import Failure, Reply, error_of
from kvstore.client.requests import Request
from kvstore.client.results import Item
from kvstore.client.session import Attempts, cannot_send
from kvstore.client.steps import Answer, Close, Emit, Feed, Pause, Step, read_stream

FRUITLESS_MAX = 8
"""How many streams in a row may end without an item before the list is given up."""


class ListStream:
    """One list."""

    def __init__(self, calls: Calls, options: RangeOptions) -> None:
        if options.get("read") == "red":
            raise cannot_send("the red state has no revision at which a stream could go on; use list()")
        self._session = calls.session
        self._options = options.copy()
        self._options.pop("page_size", None)  # a stream has no pages
        self._fruitless = 0

    def run(self) -> Feed[Item]:
        while True:
            request = self._request()
            attempts = Attempts(request, self._session.policy, self._session.clock())
            head = yield from self._session.open(request, attempts)
            if head.revision is None:
                raise head.not_understood("a list without its revision")
            self._options = {**self._options, "revision": head.revision, "read": "green"}
            self._fruitless += 1
            is_whole = yield from self._lines(head)
            yield Close()
            if is_whole:
                return
            self._session.roster.avoid(head.url, self._session.clock() + 1.0)
            if self._fruitless > FRUITLESS_MAX:
                raise Unavailable("The list breaks off again and again, without another item.", code="broken_off")
            if self._fruitless > 1:
                yield Pause(self._session.policy.wait(self._fruitless, self._session.rng))

    def _request(self) -> Request:
        return replace(range_request("items", self._options), headers={"Accept": "application/x-ndjson"})

    def _lines(self, head: Reply) -> Generator[Step | Emit[Item], Answer, bool]:
        """Emits the items of a stream, and returns whether it came to the end of the list."""
        rest: list[bytes] = []
        while True:
            data = yield from read_stream()
            if isinstance(data, Failure):
                return False
            if not data:
                return not any(rest)
            if b"\n" not in data:
                rest.append(data)  # joined once, when the line is complete
                continue
            *lines, last = b"".join([*rest, data]).split(b"\n")
            rest = [last]
            for line in lines:
                said = Reply(head.url, 503, {}, line)
                if "error" in said.fields():
                    error = error_of(said, Happened.NO)
                    if isinstance(error, Compacted):
                        raise error
                    return False
                item = decoded(said, list_item)
                self._fruitless = 0
                self._pass(item.key)
                yield Emit(item)

    def _pass(self, key: str) -> None:
        """Leaves the keys up to this one behind."""
        if self._options.get("reverse"):
            self._options = {**self._options, "end": key}
        else:
            self._options = {**self._options, "start": f"{key}\0"}
