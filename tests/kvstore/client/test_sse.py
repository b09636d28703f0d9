"""Server-Sent Events, in whatever pieces they arrive."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstore.client import sse
from kvstore.client.sse import Message, Parser, StreamError

STREAM = (
    b": hello\n\n"
    b'id: 7\ndata: {"a":\ndata: 1}\n\n'
    b"event: tentative\r\ndata: \xc3\xa4\r\n\r\n"
    b": heartbeat\rid: 9\r\r"
    b"unknown: x\ndata:no space\n\n"
    b"id: 10\ndata: cut"
)
MESSAGES = [
    Message("7", "message", '{"a":\n1}'),
    Message(None, "tentative", "ä"),
    Message("9", "message", ""),
    Message(None, "message", "no space"),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
@settings(deadline=None)
def test_pieces_do_not_matter(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    parser = Parser()
    found = [message for start, end in pairwise(places) for message in parser.feed(STREAM[start:end])]
    assert found == MESSAGES


def test_what_a_broken_connection_leaves_is_no_message() -> None:
    assert list(Parser().feed(b"id: 8\ndata: x\n")) == []


def test_a_line_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "LINE_BYTES_MAX", 100)
    parser = Parser()
    assert list(parser.feed(b"x" * 101)) == []
    with pytest.raises(StreamError):
        list(parser.feed(b"x"))
