"""The synchronous client: it performs the steps of `calls` with `httpx.Client`, and sleeps."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from random import Random
from types import TracebackType
from typing import Self, TypeVar, Unpack

import httpx

from kvstore.client.blocking_lock import Election, Lock
from kvstore.client.calls import Calls, GetOptions, RangeOptions
from kvstore.client.http import CONNECT_SECONDS, LIMITS, built, draw, failure_of, reply_of, tls_context
from kvstore.client.locking import LEASE_SECONDS, LockSteps
from kvstore.client.replies import Failure, Reply
from kvstore.client.requests import ConditionalOptions, PutOptions, Request, WriteOptions
from kvstore.client.results import (
    Changed,
    Cluster,
    Conflict,
    Count,
    Event,
    Item,
    KeyRevision,
    Preview,
    Receipt,
    Status,
    Version,
)
from kvstore.client.retrying import RetryPolicy
from kvstore.client.session import Session
from kvstore.client.steps import Answer, Close, Emit, Exchange, Feed, Open, Pause, Step, Steps
from kvstore.client.streaming import ListStream
from kvstore.client.transactions import Txn
from kvstore.client.watching import Watch, WatchEvent, WatchOptions

T = TypeVar("T")


class Write(Receipt):
    """The receipt of a write of a `Client`."""

    __slots__ = ("_client",)
    _client: Client

    def wait_green(self, timeout: float = 30.0) -> Write:
        """Waits until the write has its final place, and returns its receipt then. Raises what became of it if it
        was not applied (`ConditionFailed`, `Yielded`, `Expired`, …), or `NotGreen` if it is not green in time."""
        return self._client._written(self._client._calls.wait_green(self, timeout))


class Client:
    """A client of a cluster. It may be used by several threads. Close it, or use it as a context manager.

    `urls` are one or more nodes; the others are learned from them unless `discover` is false. `prefer` is the URL
    or the name of the node to ask first; by default, it is the first URL. `http` is the `httpx.Client` to use, for
    proxies, certificates or tests; it is not closed."""

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        prefer: str | None = None,
        retry: RetryPolicy | None = None,
        discover: bool = True,
        connect_seconds: float = CONNECT_SECONDS,
        http: httpx.Client | None = None,
        rng: Random | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        session = Session(
            urls,
            prefer=prefer,
            policy=retry or RetryPolicy(),
            discover=discover,
            rng=rng or Random(),
            clock=clock,
        )
        self._calls = Calls(session, draw)
        self._sleep = sleep
        self._connect_seconds = connect_seconds
        self._owns_http = http is None
        self._http = http or httpx.Client(verify=tls_context(session.roster.urls), limits=LIMITS, trust_env=False)

    @property
    def urls(self) -> tuple[str, ...]:
        """The nodes that are known by now, the preferred one first."""
        return self._calls.session.roster.urls

    def close(self) -> None:
        if self._owns_http:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Writing

    def put(
        self, key: str, value: bytes | str, content_type: str | None = None, **options: Unpack[PutOptions]
    ) -> Write:
        return self._written(self._calls.put(key, value, content_type, options))

    def delete(self, key: str, **options: Unpack[PutOptions]) -> Write:
        return self._written(self._calls.delete(key, options))

    def increment(self, key: str, by: int = 1, **options: Unpack[ConditionalOptions]) -> Write:
        """Adds to a counter, whose value is a decimal number. A key that does not exist counts from 0."""
        return self._written(self._calls.increment(key, by, options))

    def append(self, key: str, value: bytes | str, **options: Unpack[ConditionalOptions]) -> Write:
        return self._written(self._calls.append(key, value, options))

    def txn(self, txn: Txn, **options: Unpack[WriteOptions]) -> Write:
        return self._written(self._calls.txn(txn, options))

    def write(self, write_id: str, wait: float | None = None) -> Write:
        """Returns what became of a write: now, or as soon as it is green but after `wait` seconds at the latest.
        Raises `NotFound` if no node that answers knows it, and `Compacted` if that is so long ago that none keeps
        it."""
        return self._written(self._calls.write(write_id, wait))

    # Reading

    def get(self, key: str, **options: Unpack[GetOptions]) -> Item | None:
        """Returns the value of a key, or `None` if there is none at this read level."""
        return self._run(self._calls.get(key, options))

    def wait_for_change(self, key: str, after: int, timeout: float = 60.0) -> Changed:
        """Waits until the key has changed after that revision, and returns what it holds then and where to go on.
        Raises `Unchanged` if nothing happens in time."""
        return self._run(self._calls.wait_for_change(key, after, timeout))

    def list(self, **options: Unpack[RangeOptions]) -> Iterator[Item]:
        """Iterates over keys and values of one revision, page by page."""
        return self._iterate(self._calls.list(options))

    def stream(self, **options: Unpack[RangeOptions]) -> Iterator[Item]:
        """As `list`, as one response of any size instead of pages: the fastest way to read everything. It goes on
        at another node, at the same revision, when its node fails. `read="red"` is not possible."""
        return self._iterate(ListStream(self._calls, options).run())

    def keys(self, **options: Unpack[RangeOptions]) -> Iterator[KeyRevision]:
        return self._iterate(self._calls.keys(options))

    def count(self, **options: Unpack[RangeOptions]) -> Count:
        return self._run(self._calls.count(options))

    def history(self, key: str, page_size: int | None = None) -> Iterator[Version]:
        """Iterates over the revisions of a key that are still kept, the newest first."""
        return self._iterate(self._calls.history(key, page_size))

    def watch(self, **options: Unpack[WatchOptions]) -> Iterator[Event]:
        """Iterates over all changes, each exactly once and in order, for ever: over failures of nodes and of the
        network. Raises `Compacted` if no node keeps what it has to go on with."""
        return self._iterate(Watch(self._calls, options, False).green())

    def watch_tentative(self, **options: Unpack[WatchOptions]) -> Iterator[WatchEvent]:
        """As `watch`, with writes that are not green yet at the node, their colours and what becomes of them.
        These are not repeated after a reconnection."""
        return self._iterate(Watch(self._calls, options, True).run())

    def conflicts(
        self, from_revision: int | None = None, prefix: str | None = None, page_size: int | None = None
    ) -> Iterator[Conflict]:
        """Iterates over the writes whose outcome or effect a merge changed."""
        return self._iterate(self._calls.conflicts(from_revision, prefix, page_size))

    def preview(self, prefix: str | None = None, page_size: int | None = None) -> Iterator[Preview]:
        """Iterates over what would become of the writes that are not green, if they were merged now."""
        return self._iterate(self._calls.preview(prefix, page_size))

    # Nodes

    def status(self) -> Status:
        return self._run(self._calls.status())

    def cluster(self) -> Cluster:
        return self._run(self._calls.cluster())

    def send(self, request: Request) -> Reply:
        """Sends a request as it is to the first node that can be reached, without retries. Raises `Unreachable`;
        every answer is returned."""
        return self._run(self._calls.send(request))

    # Recipes

    def lock(self, key: str, owner: str = "", lease: float = LEASE_SECONDS) -> Lock:
        """A lock on that key; `owner` is what others can read there."""
        return Lock(LockSteps(self._calls, key, owner, lease, draw), self._run)

    def election(self, key: str, candidate: str, lease: float = LEASE_SECONDS) -> Election:
        """An election of one leader among all that use the same key."""
        return Election(LockSteps(self._calls, key, candidate, lease, draw), self._run)

    # Steps

    def _written(self, steps: Steps[Receipt]) -> Write:
        receipt = self._run(steps)
        write = Write(**{name: getattr(receipt, name) for name in Receipt.__slots__})
        object.__setattr__(write, "_client", self)
        return write

    def _run(self, steps: Steps[T]) -> T:
        answer: Answer = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            answer = self._perform(step)

    def _iterate(self, feed: Feed[T]) -> Generator[T, None, None]:
        stream = _Stream()
        answer: Answer = None
        with contextlib.closing(stream), contextlib.closing(feed):
            while True:
                try:
                    step = feed.send(answer)
                except StopIteration:
                    return
                answer = None
                if isinstance(step, Emit):
                    yield step.item
                else:
                    answer = self._perform(step, stream)

    def _perform(self, step: Step, stream: _Stream | None = None) -> Answer:
        if isinstance(step, Exchange):
            return self._exchange(step)
        if isinstance(step, Pause):
            self._sleep(step.seconds)
            return None
        if stream is None:
            raise TypeError("only an iteration has a stream")
        if isinstance(step, Open):
            return self._open(step, stream)
        if isinstance(step, Close):
            stream.close()
            return None
        return stream.read()

    def _exchange(self, step: Exchange) -> Reply | Failure:
        try:
            response = self._http.send(self._built(step))
        except httpx.RequestError as error:
            return failure_of(step.url, error)
        return reply_of(step.url, response, response.content)

    def _open(self, step: Open, stream: _Stream) -> Reply | Failure:
        try:
            response = self._http.send(self._built(step), stream=True)
            if response.status_code == 200:
                stream.open(step.url, response)
                return reply_of(step.url, response, b"")
            with contextlib.closing(response):
                return reply_of(step.url, response, response.read())
        except httpx.RequestError as error:
            return failure_of(step.url, error)

    def _built(self, step: Exchange | Open) -> httpx.Request:
        return built(self._http, step.url, step.request, self._connect_seconds)


class _Stream:
    """The stream that an iteration has open, if any."""

    def __init__(self) -> None:
        self._url = ""
        self._response: httpx.Response | None = None
        self._pieces: Iterator[bytes] = iter(())

    def open(self, url: str, response: httpx.Response) -> None:
        self.close()
        self._url, self._response, self._pieces = url, response, response.iter_bytes()

    def read(self) -> bytes | Failure:
        try:
            return next(self._pieces, b"")
        except httpx.RequestError as error:
            return failure_of(self._url, error)

    def close(self) -> None:
        if self._response is not None:
            self._response.close()
        self._response, self._pieces = None, iter(())
