"""Everything that a client can ask, as steps: the part that the synchronous and the asynchronous client share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict, TypeVar

from kvstore.client.decoding import (
    Fields,
    cluster_of,
    conflict_of,
    decoded,
    item_of,
    key_revision,
    list_item,
    preview_of,
    receipt_of,
    status_of,
    version_of,
)
from kvstore.client.errors import ClientError, Happened, NotFound, NotGreen, Unchanged
from kvstore.client.replies import Reply, outcome_error
from kvstore.client.requests import (
    ConditionalOptions,
    PutOptions,
    ReadLevel,
    Request,
    WriteOptions,
    answer_seconds,
    delete_request,
    get_request,
    milliseconds,
    patch_request,
    put_request,
    query_of,
    text_or_base64,
    txn_request,
    write_request,
)
from kvstore.client.results import (
    Changed,
    Cluster,
    Conflict,
    Count,
    Item,
    KeyRevision,
    Preview,
    Receipt,
    Status,
    Version,
)
from kvstore.client.session import Session
from kvstore.client.steps import Emit, Feed, Pause, Steps
from kvstore.client.transactions import Txn

T = TypeVar("T")

WAIT_SECONDS = 20.0
"""The longest that one request waits for a write to become green, or for a key to change. What is waited for
longer is asked for again: proxies close connections on which nothing happens."""


class GetOptions(TypedDict, total=False):
    read: ReadLevel
    """`green` (the default): what is final at the node; `red`: with what is not final yet; `linearizable`: the
    latest that is final anywhere."""
    min_revision: int
    """Wait until the node has this revision: to read one's own write, on any node."""
    revision: int
    """The value as it was at this revision."""
    timeout: float
    """For how many seconds the node may wait for that (5 by default)."""


class RangeOptions(TypedDict, total=False):
    """Which keys a list has. All pages are of one revision, whatever is written meanwhile."""

    prefix: str
    start: str
    """The first key, inclusive."""
    end: str
    """The end of the range, exclusive."""
    reverse: bool
    read: ReadLevel
    revision: int
    """The list as it was at this revision."""
    min_revision: int
    """Wait until the node has this revision: to find one's own writes, on any node."""
    timeout: float
    """For how many seconds the node may wait for that (5 by default)."""
    page_size: int
    """How many items one request fetches: the node's default if it is not given."""


class Calls:
    """The methods return steps. `draw_key` draws an Idempotency-Key that nobody else draws."""

    def __init__(self, session: Session, draw_key: Callable[[], str]) -> None:
        self.session = session
        self._draw_key = draw_key

    # Writing

    def put(self, key: str, value: bytes | str, content_type: str | None, options: PutOptions) -> Steps[Receipt]:
        return self._write(put_request(key, value, content_type, options, self._draw_key()))

    def delete(self, key: str, options: PutOptions) -> Steps[Receipt]:
        return self._write(delete_request(key, options, self._draw_key()))

    def increment(self, key: str, by: int, options: ConditionalOptions) -> Steps[Receipt]:
        return self._write(patch_request(key, {"increment": by}, options, self._draw_key()))

    def append(self, key: str, value: bytes | str, options: ConditionalOptions) -> Steps[Receipt]:
        return self._write(patch_request(key, {"append": text_or_base64(value)}, options, self._draw_key()))

    def txn(self, txn: Txn, options: WriteOptions) -> Steps[Receipt]:
        return self._write(txn_request(txn.content(), options, self._draw_key()))

    def _write(self, request: Request) -> Steps[Receipt]:
        return receipt_of((yield from self.session.call(request)))

    # What became of a write

    def write(self, write_id: str, wait: float | None, first: str | None = None) -> Steps[Receipt]:
        """Returns what became of the write: now, or as soon as it is green but after `wait` seconds at the
        latest."""
        end = self.session.clock() + (wait or 0.0)
        while True:
            left = None if wait is None else min(max(end - self.session.clock(), 0.0), WAIT_SECONDS)
            receipt = receipt_of((yield from self.session.call(write_request(write_id, left), first)))
            if wait is None or receipt.is_green or self.session.clock() >= end:
                return receipt
            yield self._breath()

    def wait_green(self, receipt: Receipt, timeout: float) -> Steps[Receipt]:
        """Waits until the write is green, and raises what its outcome is if it was not applied."""
        found = yield from self.write(receipt.id, timeout, receipt.url or None)
        decisive = found
        if found.duplicate_of is not None and found.duplicate_outcome != "applied":
            decisive = yield from self.write(found.duplicate_of, timeout, found.url)  # which says why it was not
        self._raise_outcome(decisive)
        return found

    def _raise_outcome(self, receipt: Receipt) -> None:
        if not receipt.is_green:
            raise NotGreen(
                f"Write {receipt.id} is accepted, and did not become green in time. It stands: ask for it again.",
                Happened.UNKNOWN,
                code="not_green",
                details=receipt.details,
            )
        why = receipt.details.get("reason", receipt.outcome)
        error = outcome_error(receipt.details, f"Write {receipt.id} is green, and was not applied: {why}.")
        if error is not None:
            raise error

    # Reading

    def get(self, key: str, options: GetOptions) -> Steps[Item | None]:
        request = get_request(key, **options)
        try:
            return item_of(key, (yield from self.session.call(request)))
        except NotFound as error:
            if error.code != "not_found":
                raise
            return None

    def wait_for_change(self, key: str, after: int, timeout: float) -> Steps[Changed]:
        """Waits until the key has changed after that revision, and returns what it holds then."""
        end = self.session.clock() + timeout
        while True:
            left = min(max(end - self.session.clock(), 0.0), WAIT_SECONDS)
            found = yield from self.changed_within(key, after, left)
            if found is not None:
                return found
            if self.session.clock() >= end:
                raise Unchanged(f"{key!r} did not change within {timeout:g} s after revision {after}.")
            yield self._breath()

    def changed_within(self, key: str, after: int, seconds: float) -> Steps[Changed | None]:
        """Asks once, for an answer as soon as the key has changed after that revision. Returns `None` if it did
        not within this time."""
        try:
            reply = yield from self.session.call(get_request(key, seconds, wait_revision=after))
        except NotFound as error:
            if error.code != "not_found":
                raise
            return Changed(key, None, max(error.revision or 0, after))
        if reply.status == 304:
            return None
        item = item_of(key, reply)
        return Changed(key, item, item.revision or after)

    def _breath(self) -> Pause:
        """A node that cannot wait answers early: it is not asked again without a pause."""
        return Pause(self.session.policy.wait(1, self.session.rng))

    # Many

    def list(self, options: RangeOptions) -> Feed[Item]:
        return self._pages(range_request("items", options), list_item)

    def keys(self, options: RangeOptions) -> Feed[KeyRevision]:
        return self._pages(range_request("keys", options), key_revision)

    def count(self, options: RangeOptions) -> Steps[Count]:
        reply = yield from self.session.call(range_request("count", options))
        return decoded(reply, lambda content: Count(int(content["count"]), int(content["revision"])))

    def history(self, key: str, page_size: int | None) -> Feed[Version]:
        return self._pages(Request("GET", "/v1/history", query_of(key=key, limit=page_size)), version_of(key))

    def conflicts(self, from_revision: int | None, prefix: str | None, page_size: int | None) -> Feed[Conflict]:
        query = query_of(from_=from_revision, prefix=prefix, limit=page_size)
        return self._pages(Request("GET", "/v1/conflicts", query), conflict_of)

    def preview(self, prefix: str | None, page_size: int | None) -> Feed[Preview]:
        request = Request("GET", "/v1/conflicts/preview", query_of(prefix=prefix, limit=page_size))
        return self._pages(request, preview_of)

    def _pages(self, request: Request, decode: Callable[[Fields], T]) -> Feed[T]:
        """Emits the items of all pages. Every page but the first is asked for where the one before came from, as
        long as that node answers: it has what the cursor needs."""
        cursor: str | None = None
        url: str | None = None
        while True:
            page = request if cursor is None else request.with_query(cursor=cursor)
            reply = yield from self.session.call(page, url)
            url = reply.url
            items, following = decoded(reply, lambda content: (list(content["items"]), content.get("cursor")))
            for item in items:
                yield Emit(decoded(reply, decode, item))
            if following is None:
                return
            if following == cursor:
                raise ClientError(f"{reply.url} answered with a cursor that does not move on")
            cursor = str(following)

    # Nodes

    def status(self) -> Steps[Status]:
        return status_of((yield from self.session.call(Request("GET", "/v1/status"))))

    def cluster(self) -> Steps[Cluster]:
        reply = yield from self.session.call(Request("GET", "/v1/cluster"))
        self.session.heard(reply.fields().get("nodes"))
        return decoded(reply, cluster_of)

    def send(self, request: Request) -> Steps[Reply]:
        return self.session.send(request)


def range_request(what: str, options: RangeOptions) -> Request:
    """Returns the request for `items`, `keys` or their `count`."""
    query = query_of(
        prefix=options.get("prefix"),
        start=options.get("start"),
        end=options.get("end"),
        reverse=options.get("reverse"),
        limit=None if what == "count" else options.get("page_size"),
        keys_only=what == "keys",
        count_only=what == "count",
        read=options.get("read"),
        revision=options.get("revision"),
        min_revision=options.get("min_revision"),
        timeout_ms=milliseconds(options.get("timeout")),
    )
    return Request("GET", "/v1/kv", query, answer_seconds=answer_seconds(options.get("timeout")))
