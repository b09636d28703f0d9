"""The past of one key: `GET /v1/kv/{key}?revision=N` and `GET /v1/history`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from tests.api.cluster import Answer, Cluster, Node, eventually

MIB = 1_048_576


def ask(node: Node, **parameters: object) -> Answer:
    return node.get_path(f"/v1/history?{urlencode(parameters)}")


def history(node: Node, **parameters: object) -> Any:
    answer = ask(node, **parameters)
    assert answer.status == 200, answer.body
    return answer.json


# A key as it was


def test_a_key_is_read_as_it_was_at_any_revision(cluster: Cluster, key: str) -> None:
    node = cluster["a"]
    one = node.put(key, "one", Content_Type="text/plain").json["revision"]
    node.put(f"{key}-", "other")
    two = node.put(key, "two").json["revision"]
    gone = node.delete(key).json["revision"]
    for reader in cluster:
        found = {
            revision: reader.get(key, f"?revision={revision}")
            for revision in (one - 1, one, one + 1, two, gone, gone - 1)
        }
        assert [found[at].status for at in (one - 1, gone)] == [404, 404]
        assert [found[at].body for at in (one, one + 1, two, gone - 1)] == [b"one", b"one", b"two", b"two"]
        assert (found[one + 1].tag, found[one + 1].headers["corel-revision"]) == (f'"{one}"', str(one))
        assert found[one].headers["content-type"] == "text/plain"
        assert found[one].headers["corel-color"] == "green"
        assert reader.head(key, f"?revision={two}").tag == f'"{two}"'
        assert reader.get(key, f"?revision={two}", If_None_Match=f'"{two}"').status == 304


def test_a_revision_that_is_not_reached_is_waited_for(three: Cluster, key: str) -> None:
    three.partition("ab|c")
    revision = three["a"].put(key, "x").json["revision"]
    late = three["c"].get(key, f"?revision={revision}&timeout_ms=100")
    assert (late.status, late.error) == (504, "revision_not_reached")
    found: list[bytes] = []
    reader = threading.Thread(
        target=lambda: found.append(three["c"].get(key, f"?revision={revision}&timeout_ms=25000").body)
    )
    reader.start()
    three.heal()
    reader.join(30.0)
    assert found == [b"x"]


@pytest.mark.parametrize(
    ("query", "error"),
    [
        *(("?revision=1&read=red", "contradictory_parameters"), ("?revision=x", "invalid_parameter")),
        *(("?revision=1&read=linearizable", "contradictory_parameters"), ("?revision=-1", "invalid_parameter")),
        *(("?revision=", "invalid_parameter"), ("?revision=9223372036854775808", "invalid_parameter")),
    ],
)
def test_a_revision_is_a_number_and_only_the_green_state_has_them(
    node: Node, key: str, query: str, error: str
) -> None:
    node.put(key, "x")
    refused = node.get(key, query)
    assert (refused.status, refused.error) == (400, error)
    assert node.head(key, query).status == 400


# The revisions of a key


def test_the_history_of_a_key_is_newest_first_with_the_writes(cluster: Cluster, key: str) -> None:
    node = cluster["a"]
    text = node.put(key, "one", Content_Type="text/plain").json
    gone = node.delete(key).json
    both = node.txn({"then": [{"put": {"key": key, "value": {"base64": "/w=="}}}, {"delete": {"key": f"{key}-"}}]})
    more = node.patch(key, {"append": "!"}).json
    octets = "application/octet-stream"
    items = [
        {"revision": more["revision"], "write": more["id"], "value": {"base64": "/yE="}, "content_type": octets},
        {
            "revision": both.json["revision"],
            "write": both.json["id"],
            "value": {"base64": "/w=="},
            "content_type": octets,
        },
        {"revision": gone["revision"], "write": gone["id"], "deleted": True},
        {"revision": text["revision"], "write": text["id"], "value": "one", "content_type": "text/plain"},
    ]
    for reader in cluster:
        reader.get(key, f"?min_revision={more['revision']}")
        assert history(reader, key=key) == {"key": key, "items": items, "cursor": None, "oldest": 0}
        page, found = history(reader, key=key, limit=1), []
        while page["cursor"] is not None:
            found += page["items"]
            page = history(cluster["b"], key=key, limit=1, cursor=page["cursor"])
        assert found + page["items"] == items


def test_a_key_that_never_was_has_no_history(node: Node, key: str) -> None:
    assert history(node, key=key) == {"key": key, "items": [], "cursor": None, "oldest": 0}


def test_new_revisions_do_not_disturb_the_pages(node: Node, key: str) -> None:
    revisions = [node.put(key, str(number)).json["revision"] for number in range(20)]
    page, found = history(node, key=key, limit=7), []
    while True:
        found += [item["revision"] for item in page["items"]]
        if page["cursor"] is None:
            break
        node.put(key, "later")
        page = history(node, key=key, limit=7, cursor=page["cursor"])
    assert found == revisions[::-1]


def test_a_page_of_large_values_ends_early(node: Node, key: str) -> None:
    for number in range(6):
        node.put(key, str(number) * MIB)
    first = history(node, key=key)
    rest = history(node, key=key, cursor=first["cursor"])
    assert [item["value"][0] for item in first["items"] + rest["items"]] == list("543210")
    assert (len(first["items"]), rest["cursor"]) == (4, None)


@pytest.mark.parametrize(
    "query",
    [
        *("", "?key=", "?key=%ff", f"?key={'k' * 481}", "?key=k&limit=0", "?key=k&limit=1001", "?key=k&limit=x"),
        *("?key=k&from=1", "?key=k&key=k", "?key=k&cursor=", "?key=k&cursor=AAAA", "?key=k&timeout_ms=-1"),
    ],
)
def test_what_is_not_understood_is_refused(node: Node, query: str) -> None:
    refused = node.get_path(f"/v1/history{query}")
    assert refused.status == 400
    assert refused.error in (
        *("invalid_parameter", "unknown_parameter", "invalid_cursor", "empty_key", "invalid_key", "key_too_large"),
    )


def test_a_cursor_is_for_its_key(node: Node, key: str) -> None:
    for name in (key, f"{key}-"):
        node.put(name, "1")
        node.put(name, "2")
    cursor = history(node, key=key, limit=1)["cursor"]
    refused = ask(node, key=f"{key}-", cursor=cursor)
    assert (refused.status, refused.error) == (400, "invalid_cursor")
    assert node.get_path(f"/v1/kv?cursor={quote(cursor)}").error == "invalid_cursor"


# Retention

FORGETFUL = ("--set", "store.history_revisions=5", "--set", "store.checkpoint_ms=10")


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node that keeps the past of five revisions."""
    with Cluster("a", tmp_path_factory.mktemp("forgetful"), FORGETFUL) as cluster:
        yield cluster.start()["a"]


def test_the_past_ends_where_it_is_no_longer_kept(forgetful: Node, key: str) -> None:
    revisions = [forgetful.put(key, str(number)).json["revision"] for number in range(12)]
    eventually(lambda: history(forgetful, key=key)["oldest"] == revisions[-1] - 5)
    page = history(forgetful, key=key)
    oldest = page["oldest"]
    assert [item["revision"] for item in page["items"]] == [at for at in revisions[::-1] if at > oldest]
    gone = forgetful.get(key, f"?revision={oldest - 1}")
    assert (gone.status, gone.error) == (410, "compacted")
    assert (gone.json["oldest"], gone.json["revision"]) == (oldest, revisions[-1])
    assert forgetful.head(key, f"?revision={oldest - 1}").status == 410
    assert forgetful.get(key, f"?revision={oldest}").body == str(revisions.index(oldest)).encode()
