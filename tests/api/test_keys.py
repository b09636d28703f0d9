"""`/v1/kv/{key}` in a connected cluster: every call, parameter, header and status of the contract."""

from __future__ import annotations

import os
from urllib.parse import quote

import pytest

from tests.api.cluster import Answer, Cluster, Node, eventually

MIB = 1_048_576


def is_green(answer: Answer) -> bool:
    """Returns whether a write was answered as applied and green. Checks that its headers agree with its body."""
    content = answer.json
    assert answer.headers["corel-color"] == content["color"]
    assert answer.headers["location"] == f"/v1/writes/{content['id']}"
    return (answer.status, content["color"], content["outcome"]) == (200, "green", "applied")


# PUT and GET


def test_a_value_is_green_and_readable_on_every_node(cluster: Cluster, key: str) -> None:
    written = cluster["a"].put(key, "hello", Content_Type="text/plain")
    assert is_green(written)
    revision = written.json["revision"]
    assert written.headers["corel-revision"] == str(revision)
    assert written.tag == f'"{revision}"'
    for node in cluster:
        found = node.get(key, f"?min_revision={revision}")
        assert (found.status, found.body, found.tag) == (200, b"hello", written.tag)
        assert found.headers["content-type"] == "text/plain"
        assert found.headers["corel-color"] == "green"
        assert found.headers["corel-revision"] == str(revision)


def test_revisions_only_grow(cluster: Cluster, key: str) -> None:
    revisions = [cluster[name].put(key, name).json["revision"] for name in "abcabc"]
    assert revisions == sorted(set(revisions))
    assert cluster["b"].get(key, f"?min_revision={revisions[-1]}").body == b"c"


@pytest.mark.parametrize(
    "name", ["plain", "a/b/c", "/", "//", "a//b/", ".", "../..", "ключ/é", "😀", "a b+c%", "a?b#c&d", "\0\n\x7f"]
)
def test_keys_are_any_text(node: Node, key: str, name: str) -> None:
    whole = f"{key}{name}"
    for path in (f"/v1/kv/{quote(whole, safe='')}", f"/v1/kv/{quote(whole, safe='/+.')}"):
        assert node.call("PUT", path, path.encode()).status == 200
        found = node.call("GET", path)
        assert (found.status, found.body) == (200, path.encode())
    assert node.txn({"then": [{"get": {"key": whole}}]}).json["results"][0]["key"] == whole


def test_a_key_that_begins_with_a_slash_is_not_the_one_without(node: Node, key: str) -> None:
    assert is_green(node.put(f"/{key}", "slash"))
    assert is_green(node.put(f"{key}", "none"))
    assert (node.get(f"/{key}").body, node.get(key).body) == (b"slash", b"none")


def test_a_plus_in_a_path_is_a_plus(node: Node, key: str) -> None:
    assert is_green(node.call("PUT", f"/v1/kv/{key}a+b", b"plus"))
    assert node.get(f"{key}a+b").body == b"plus"
    assert node.get(f"{key}a b").status == 404


@pytest.mark.parametrize("letter", ["k", "é", "😀"])
def test_a_key_has_at_most_480_bytes(node: Node, key: str, letter: str) -> None:
    room = 480 - len(key)
    longest = key + "k" * (room % len(letter.encode())) + letter * (room // len(letter.encode()))
    assert len(longest.encode()) == 480
    assert is_green(node.put(longest, "fits"))
    assert node.get(longest).body == b"fits"
    for refused in (node.put(f"{longest}x", "?"), node.get(f"{longest}x"), node.delete(f"{longest}x")):
        assert (refused.status, refused.error) == (400, "key_too_large")
    assert node.head(f"{longest}x").status == 400


@pytest.mark.parametrize("value", [b"", b"\0", bytes(range(256)), b"\r\n\r\n", b"null", "é".encode("utf-16")])
def test_a_value_is_any_bytes(node: Node, key: str, value: bytes) -> None:
    assert is_green(node.put(key, value))
    found = node.get(key)
    assert (found.body, found.headers["content-length"]) == (value, str(len(value)))
    assert found.headers["content-type"] == "application/octet-stream"


def test_a_value_has_up_to_a_mebibyte_and_not_a_byte_more(cluster: Cluster, key: str) -> None:
    value = os.urandom(MIB)
    written = cluster["a"].put(key, value)
    assert is_green(written)
    assert cluster["b"].get(key, f"?min_revision={written.json['revision']}").body == value
    head = f"PUT /v1/kv/{key} HTTP/1.1\r\nHost: x\r\nContent-Length: {MIB + 1}\r\n\r\n"
    refused = cluster["a"].raw(head.encode())
    assert refused.startswith(b"HTTP/1.1 413 ")
    assert b'"body_too_large"' in refused
    assert cluster["a"].get(key).body == value


def test_who_sends_a_byte_too_much_hears_why_although_the_node_does_not_read_it_all(node: Node, key: str) -> None:
    for _ in range(20):
        refused = node.put(key, bytes(MIB + 1))
        assert (refused.status, refused.error) == (413, "body_too_large")
    assert node.get(key).status == 404


def test_a_body_may_come_in_chunks_without_a_length(node: Node, key: str) -> None:
    head = f"PUT /v1/kv/{key} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    assert b" 200 " in node.raw(head.encode(), b"3\r\nabc\r\n", b"2\r\nde\r\n", b"0\r\n\r\n").splitlines()[0]
    assert node.get(key).body == b"abcde"
    chunk = b"80000\r\n" + bytes(0x80000) + b"\r\n"
    answer = node.raw(head.encode(), chunk, chunk, b"1\r\n!\r\n")
    assert b" 413 " in answer.splitlines()[0]
    assert node.get(key).body == b"abcde"


@pytest.mark.parametrize(
    "content_type", ["text/html; charset=utf-8", "application/x-é".encode().decode("latin-1")]
)
def test_a_content_type_is_kept_if_it_is_printable_ascii(node: Node, key: str, content_type: str) -> None:
    written = node.put(key, "x", Content_Type=content_type)
    if content_type.isascii():
        assert node.get(key).headers["content-type"] == content_type
    else:
        assert (written.status, written.error) == (400, "invalid_content_type")


def test_a_content_type_has_at_most_255_characters(node: Node, key: str) -> None:
    assert is_green(node.put(key, "x", Content_Type="a/" + "b" * 253))
    refused = node.put(key, "y", Content_Type="a/" + "b" * 254)
    assert (refused.status, refused.error) == (400, "content_type_too_long")


def test_a_put_replaces_value_and_content_type(node: Node, key: str) -> None:
    first = node.put(key, "<p>", Content_Type="text/html").json["revision"]
    assert node.put(key, b"\x01").json["revision"] > first
    found = node.get(key)
    assert (found.body, found.headers["content-type"]) == (b"\x01", "application/octet-stream")


# DELETE, PATCH


def test_a_deleted_key_is_gone_and_to_delete_it_again_changes_nothing(node: Node, key: str) -> None:
    node.put(key, "x")
    deleted = node.delete(key)
    assert is_green(deleted)
    assert deleted.json["revision"] is not None
    missing = node.get(key)
    assert (missing.status, missing.error, missing.headers["corel-color"]) == (404, "not_found", "green")
    again = node.delete(key)
    assert is_green(again)
    assert again.json["revision"] is None
    assert "corel-revision" not in again.headers


def test_an_increment_counts_from_nothing_and_down(node: Node, key: str) -> None:
    assert [node.patch(key, {"increment": by}).status for by in (40, -50, 8)] == [200] * 3
    found = node.get(key)
    assert (found.body, found.headers["content-type"]) == (b"-2", "text/plain; charset=utf-8")


def test_an_append_adds_text_or_bytes(node: Node, key: str) -> None:
    for value in ("é", {"base64": "/wA="}, ""):
        assert is_green(node.patch(key, {"append": value}))
    assert node.get(key).body == "é".encode() + b"\xff\0"


def test_an_impossible_change_is_a_conflict_that_changes_nothing(node: Node, key: str) -> None:
    largest = 2**63 - 1
    cases = [
        ("text", {"increment": 1}, "not_a_number"),
        (str(largest), {"increment": 1}, "out_of_range"),
        ("x" * MIB, {"append": "!"}, "value_too_large"),
    ]
    for value, change, code in cases:
        revision = node.put(key, value).json["revision"]
        refused = node.patch(key, change)
        assert (refused.status, refused.error) == (409, code)
        assert refused.json["outcome"] == "rejected"
        assert refused.json["revision"] == revision
        assert node.get(key).body == value.encode()


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[]", b"{}", b"null", b"1", b'{"increment": 1.5}', b'{"increment": "1"}', b'{"append": 1}'),
        *(
            b'{"increment": true}',
            b'{"increment": 1, "append": "x"}',
            b'{"multiply": 2}',
            b'{"append": "\\ud800"}',
        ),
        *(b'{"append": {"base64": "!"}}', b'{"increment": 9223372036854775808}', b'{"append": null}', b"\xff"),
        *(b'{"increment": ' + b"9" * 5_000 + b"}", b"[" * 100_000, b'{"append": {"base64": "YQ==", "x": 1}}'),
    ],
    ids=lambda body: body[:24].decode("latin-1"),
)
def test_a_change_that_is_none_is_refused(node: Node, key: str, body: bytes) -> None:
    refused = node.call("PATCH", f"/v1/kv/{key}", body)
    assert refused.status == 400
    assert refused.error
    assert node.get(key).status == 404


# Conditions


def test_if_match_writes_only_what_was_read(node: Node, key: str) -> None:
    node.put(key, "one")
    read = node.get(key)
    assert is_green(node.put(key, "two", If_Match=read.tag))
    late = node.put(key, "three", If_Match=read.tag)
    assert (late.status, late.error, late.json["outcome"]) == (412, "condition_failed", "rejected")
    now = node.get(key)
    assert now.body == b"two"
    assert late.json["revision"] == int(now.headers["corel-revision"])
    assert late.json["id"]
    assert node.delete(key, If_Match=read.tag).status == 412
    assert node.patch(key, {"append": "!"}, If_Match=now.tag).status == 200


def test_a_condition_on_a_key_that_is_not_there(node: Node, key: str) -> None:
    for tag in ('"1"', "*", '"b.1.1.0"'):
        refused = node.put(key, "x", If_Match=tag)
        assert (refused.status, refused.json["revision"]) == (412, 0)
    assert is_green(node.put(key, "x", If_None_Match="*"))
    assert node.put(key, "y", If_None_Match="*").status == 412
    assert is_green(node.put(key, "z", If_Match="*"))
    assert node.get(key).body == b"z"


def test_the_write_id_serves_as_a_tag(node: Node, key: str) -> None:
    first = node.put(key, "x").json["id"]
    assert is_green(node.put(key, "y", If_Match=f'"{first}"'))
    assert node.put(key, "z", If_Match=f'"{first}"').status == 412


def test_of_many_writers_with_one_tag_one_wins(cluster: Cluster, key: str) -> None:
    tag = cluster["a"].put(key, "start").tag
    statuses = [cluster[name].put(key, name, If_Match=tag).status for name in "cba"]
    assert sorted(statuses) == [200, 412, 412]


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"If_Match": '"1"', "If_None_Match": "*"}, "contradictory_conditions"),
        ({"If_None_Match": '"1"'}, "invalid_condition"),
        ({"If_Match": "1"}, "invalid_condition"),
        ({"If_Match": ""}, "invalid_condition"),
        ({"If_Match": 'W/"1"'}, "invalid_condition"),
        ({"If_Match": '"1", "2"'}, "invalid_condition"),
        ({"If_Match": '"0"'}, "invalid_condition"),
        ({"If_Match": '"9223372036854775808"'}, "invalid_condition"),
        ({"Idempotency_Key": ""}, "invalid_idempotency_key"),
        ({"Idempotency_Key": "k" * 256}, "invalid_idempotency_key"),
    ],
)
def test_conditions_that_make_no_sense_are_refused(
    node: Node, key: str, headers: dict[str, str], code: str
) -> None:
    for refused in (node.put(key, "x", **headers), node.delete(key, **headers)):
        assert (refused.status, refused.error) == (400, code)
    assert node.get(key).status == 404


def test_a_read_may_ask_only_for_what_is_new(node: Node, key: str) -> None:
    tag = node.put(key, "x").tag
    for known in (tag, "*"):
        unchanged = node.get(key, If_None_Match=known)
        assert (unchanged.status, unchanged.body, unchanged.tag) == (304, b"", tag)
        assert node.head(key, If_None_Match=known).status == 304
    node.put(key, "y")
    assert node.get(key, If_None_Match=tag).body == b"y"


def test_a_conditional_read_takes_lists_and_weak_tags_as_caches_send_them(node: Node, key: str) -> None:
    tag = node.put(key, "x").tag
    for known in (f'"0", {tag}', f"W/{tag}"):
        assert node.get(key, If_None_Match=known).status == 304


# Idempotency


def test_a_retry_on_any_node_applies_once(cluster: Cluster, key: str) -> None:
    first = cluster["a"].patch(key, {"increment": 1}, Idempotency_Key=key)
    for node in cluster:
        again = node.patch(key, {"increment": 1}, Idempotency_Key=key)
        assert again.status == 200
        assert again.json["outcome"] == "duplicate"
        assert again.json["duplicate_of"] == first.json["id"]
        assert again.json["revision"] == first.json["revision"]
    assert cluster["a"].get(key).body == b"1"


def test_an_idempotency_key_is_for_one_write(node: Node, key: str) -> None:
    assert is_green(node.put(key, "x", Idempotency_Key=key))
    other = node.put(key, "y", Idempotency_Key=key)
    assert (other.status, other.error) == (422, "idempotency_key_reused")
    assert node.get(key).body == b"x"


def test_a_retry_of_a_rejected_write_is_rejected(node: Node, key: str) -> None:
    assert node.put(key, "x", If_Match="*", Idempotency_Key=key).status == 412
    node.put(key, "now it is there")
    again = node.put(key, "x", If_Match="*", Idempotency_Key=key)
    assert (again.status, again.json["outcome"]) == (412, "duplicate")
    assert node.get(key).body == b"now it is there"


# Parameters


@pytest.mark.parametrize("ack", ["auto", "green"])
def test_a_write_waits_for_green_where_there_is_a_primary(node: Node, key: str, ack: str) -> None:
    assert is_green(node.put(key, "x", f"?ack={ack}&timeout_ms=10000"))
    assert is_green(node.patch(key, {"append": "y"}, f"?ack={ack}"))
    assert is_green(node.delete(key, f"?ack={ack}"))


def test_with_ack_red_a_write_is_answered_when_it_is_on_this_disk(node: Node, key: str) -> None:
    written = node.put(key, "x", "?ack=red")
    if written.status == 202:  # it may have become green before it was on the disk
        assert written.json["color"] in ("yellow", "red")
        assert written.json["outcome"] == "pending"
        assert written.headers["location"] == f"/v1/writes/{written.json['id']}"
        assert written.headers["corel-color"] == written.json["color"]
    assert node.fate(written.json["id"], "?wait=green").json["outcome"] == "applied"
    assert node.get(key).body == b"x"


def test_a_write_without_patience_says_what_is_known_and_stands_if_it_has_an_id(node: Node, key: str) -> None:
    written = node.put(key, "x", "?timeout_ms=0")
    assert written.status in (200, 202, 503, 504)
    if written.status == 503:
        assert written.error == "timeout"
        assert node.get(key, "?read=red").status == 404
    else:
        assert written.headers["location"] == f"/v1/writes/{written.json['id']}"
        eventually(lambda: node.fate(written.json["id"]).json.get("outcome") == "applied")


@pytest.mark.parametrize("read", ["green", "red", "linearizable"])
def test_reads_of_every_level(cluster: Cluster, key: str, read: str) -> None:
    revision = cluster["a"].put(key, "x").json["revision"]
    found = cluster["b"].get(key, f"?read={read}&min_revision={revision}&timeout_ms=10000")
    assert (found.status, found.body) == (200, b"x")
    assert cluster["b"].get(f"{key}-other", f"?read={read}").status == 404


def test_linearizable_reads_see_what_was_answered_anywhere_before(cluster: Cluster, key: str) -> None:
    for number in range(15):
        writer, reader = cluster["abc"[number % 3]], cluster["abc"[(number + 1) % 3]]
        assert is_green(writer.put(key, str(number)))
        assert reader.get(key, "?read=linearizable").body == str(number).encode()


def test_a_head_is_a_get_without_the_value(node: Node, key: str) -> None:
    node.put(key, "hello", Content_Type="text/plain")
    found, head = node.get(key), node.head(key)
    assert (head.status, head.body, head.headers) == (200, b"", found.headers)
    node.delete(key)
    gone = node.head(key)
    assert (gone.status, gone.body) == (404, b"")


def test_a_revision_that_does_not_come_is_a_time_out(node: Node, key: str) -> None:
    node.put(key, "x")
    late = node.get(key, f"?min_revision={2**62}&timeout_ms=50")
    assert (late.status, late.error) == (504, "revision_not_reached")
    assert late.json["revision"] >= 1
    assert late.headers["retry-after"] == "1"
    assert node.get(key).status == 200


@pytest.mark.parametrize("method", ["POST", "OPTIONS", "TRACE", "PROPFIND"])
def test_other_methods_are_not_allowed(node: Node, key: str, method: str) -> None:
    refused = node.call(method, f"/v1/kv/{key}")
    assert (refused.status, refused.error) == (405, "method_not_allowed")
    assert refused.headers["allow"] == "GET, HEAD, PUT, PATCH, DELETE"


def test_a_path_spelt_with_escapes_is_the_same_path(node: Node, key: str) -> None:
    key = key.replace("/", "-")
    written = node.call("PUT", f"/v1/%6bv/{key}", b"x")
    assert written.status == 404 or is_green(written)
    assert node.get(key).status == written.status
