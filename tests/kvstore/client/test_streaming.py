"""A list as one stream: every key of one revision once, in order, over whatever breaks off."""

from __future__ import annotations

import json

import pytest

from kvstore.client import ClientError, Compacted, Unavailable
from kvstore.client.calls import RangeOptions
from kvstore.client.streaming import FRUITLESS_MAX, ListStream
from tests.kvstore.client.scripted import LOST, A, B, World, problem, reply


def lines(*keys: str) -> bytes:
    items = [{"key": key, "value": key.upper(), "revision": 3, "content_type": "text/plain"} for key in keys]
    return b"".join([json.dumps(item).encode() + b"\n" for item in items])


def world(a: list[list[bytes | str]], b: list[list[bytes | str]] | None = None) -> World:
    return World({A: [LOST], B: [LOST]}, {A: a, B: b or []}, {"corel-revision": "7"})


def read(world: World, **options: object) -> list[str]:
    chosen = RangeOptions(**options)  # type: ignore[typeddict-item]
    return [item.key for item in world.take(ListStream(world.calls(A, B), chosen).run(), 99)]


def test_a_stream_is_read_to_its_end_in_whatever_pieces_it_comes() -> None:
    whole = lines("a", "é", "c")
    for size in (1, 7, 1_000):
        made = world([[whole[place : place + size] for place in range(0, len(whole), size)]])
        assert read(made, prefix="p", page_size=2) == ["a", "é", "c"]
        [(_, request)] = made.asked
        assert (request.headers["Accept"], request.query) == ("application/x-ndjson", {"prefix": "p"})


@pytest.mark.parametrize("end", [[LOST], [b'{"key":"b"'], [b'{"error":"unavailable","message":"It stops."}\n']])
def test_what_breaks_off_goes_on_after_its_last_key_at_the_same_revision_elsewhere(end: list[bytes | str]) -> None:
    made = world([[lines("a"), *end]], [[lines("b")]])
    assert read(made, read="linearizable", end="z") == ["a", "b"]
    (first, _), (second, request) = made.asked
    assert (first, second) == (A, B)
    assert request.query == {"start": "a\0", "end": "z", "read": "green", "revision": "7"}


def test_a_reversed_one_goes_on_before_its_last_key() -> None:
    made = world([[lines("c", "b"), LOST]], [[lines("a")]])
    assert read(made, reverse=True) == ["c", "b", "a"]
    assert made.asked[1][1].query["end"] == "b"


def test_a_revision_that_is_no_longer_kept_is_an_error() -> None:
    gone = {"error": "compacted", "message": "Too old.", "oldest": 9}
    with pytest.raises(Compacted) as raised:
        read(world([[lines("a"), json.dumps(gone).encode() + b"\n"]]))
    assert raised.value.oldest == 9
    with pytest.raises(Compacted):
        read(World({A: [problem(410, "compacted", oldest=9)], B: [problem(410, "compacted", oldest=9)]}))


def test_one_that_never_comes_to_another_item_is_given_up() -> None:
    broken: list[list[bytes | str]] = [[LOST] for _ in range(FRUITLESS_MAX + 1)]
    with pytest.raises(Unavailable, match="again and again"):
        read(world(broken, [one.copy() for one in broken]))


@pytest.mark.parametrize("line", [b"<html>\n", b"[]\n", b'{"key":"a"}\n'])
def test_what_is_not_a_list_is_an_error(line: bytes) -> None:
    with pytest.raises(ClientError, match="is it a corelkv node"):
        read(world([[line]]))
    with pytest.raises(ClientError, match="without its revision"):
        read(World({A: [reply(200)]}, {A: [[]]}))


def test_the_red_state_is_not_streamed() -> None:
    with pytest.raises(ClientError, match="use list"):
        read(world([]), read="red")
