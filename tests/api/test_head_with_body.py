"""The head of a response is sent together with its body, in one write."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from api.http_protocol import _HeadWithBody


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.written.append(data)

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


def cycle() -> tuple[Any, Transport, _HeadWithBody]:
    transport = Transport()
    made: Any = SimpleNamespace(transport=transport, response_started=False)
    return made, transport, _HeadWithBody(made)


def test_the_head_waits_for_the_body() -> None:
    made, transport, held = cycle()
    made.response_started = True
    held.write(b"head")
    assert transport.written == []
    held.write(b"body")
    held.write(b"more")
    assert transport.written == [b"headbody", b"more"]


def test_an_empty_body_lets_it_go_too() -> None:
    made, transport, held = cycle()
    made.response_started = True
    held.write(b"head")
    held.write(b"")
    assert transport.written == [b"head"]


def test_what_comes_before_the_answer_leaves_at_once() -> None:
    made, transport, held = cycle()
    held.write(b"100 Continue")
    assert transport.written == [b"100 Continue"]
    made.response_started = True
    held.write(b"head")
    held.write(b"body")
    assert transport.written == [b"100 Continue", b"headbody"]


def test_an_answer_that_breaks_off_shows_its_head() -> None:
    made, transport, held = cycle()
    made.response_started = True
    held.write(b"head")
    held.close()
    assert (transport.written, held.is_closing()) == ([b"head"], True)
