"""The nodes under test, asked over HTTP by those who are not users: for their status, to disturb them, to look
at what they have in the end."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

SECONDS = 10.0
_LOG_PAGE = 200


class NodeError(Exception):
    """A node did not answer as it should. The message says which, and what to do."""


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    url: str


class Nodes:
    """The nodes at some URLs. It may be used by one thread at a time."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = tuple(urls)
        self._http = httpx.Client(timeout=SECONDS, trust_env=False)
        self._names: dict[str, str] = {}

    def close(self) -> None:
        self._http.close()

    def __iter__(self) -> Iterator[Node]:
        """Those whose names are known by now: `status` learns them."""
        return iter([Node(name, url) for url, name in self._names.items()])

    def learn(self) -> Sequence[Node]:
        """Learns the names of all nodes, or raises `NodeError`."""
        for url in self.urls:
            if self.status(url) is None:
                raise NodeError(f"no node answers at {url}: is it running? --host names the URLs, with commas")
        return list(self)

    def status(self, url: str, seconds: float = SECONDS) -> Any | None:
        """Returns a node's status, or `None` if it does not answer."""
        try:
            answer = self._http.get(f"{url}/v1/status", timeout=seconds)
        except httpx.HTTPError:
            return None
        if answer.status_code != 200:
            return None
        found = answer.json()
        self._names[url] = str(found["node"])
        return found

    # Disturbances

    def disturb(self, url: str, chaos: dict[str, Any]) -> bool:
        """Disturbs a node's network, or ends all disturbances if there are none in `chaos`. Returns false if it
        did not answer, because it is down."""
        try:
            if chaos:
                answer = self._http.put(f"{url}/v1/chaos", json=chaos)
            else:
                answer = self._http.delete(f"{url}/v1/chaos")
        except httpx.HTTPError:
            return False
        if answer.status_code == 404:
            raise NodeError(
                f"{url} was started without --chaos: start its cluster with it, or leave --chaos out here"
            )
        return answer.status_code == 200

    def heal(self) -> None:
        for url in self.urls:
            self.disturb(url, {})

    def heal_if_disturbed(self) -> None:
        """Ends disturbances, if there are any: clusters without --chaos have none."""
        for url in self.urls:
            if (self.status(url) or {}).get("chaos"):
                self.disturb(url, {})

    # What they have

    def await_quiet(self, seconds: float, say: Callable[[str], None] = lambda text: None) -> int:
        """Waits until all nodes are in one primary component and everything is green everywhere, and returns the
        revision. Raises `NodeError` after that many seconds."""
        end = time.monotonic() + seconds
        while True:
            found = [self.status(url) for url in self.urls]
            problem = _unquiet(found)
            if problem is None:
                return max(int(status["green"]["revision"]) for status in found if status is not None)
            if time.monotonic() > end:
                raise NodeError(f"the nodes did not become quiet within {seconds:.0f} s: {problem}")
            say(problem)
            time.sleep(0.2)

    def log(self, url: str) -> Iterator[dict[str, Any]]:
        """Returns all messages of a node's log, page by page."""
        position = 0
        while True:
            page = self._get(f"{url}/v1/log?from={position}&limit={_LOG_PAGE}")
            yield from page["entries"]
            if page["next"] == position or not page["entries"]:
                return
            position = int(page["next"])

    def fate(self, url: str, write_id: str) -> dict[str, Any] | None:
        """Returns what a node says became of a write, or `None` if it does not know it."""
        answer = self._http.get(f"{url}/v1/writes/{write_id}")
        return None if answer.status_code == 404 else self._checked(answer)

    def value(self, url: str, key: str) -> str | None:
        answer = self._http.get(f"{url}/v1/kv/{quote(key, safe='/')}")
        if answer.status_code == 404:
            return None
        if answer.status_code != 200:
            raise NodeError(f"{answer.request.url} answered {answer.status_code}: {answer.text[:200]}")
        return answer.text

    def oldest_revision(self, url: str) -> int:
        """Returns the oldest revision of which a node keeps the state: its feed begins with the next one."""
        return int(self._get(f"{url}/v1/status")["oldest_revision"])

    def state_digest(self, url: str, revision: int) -> str:
        """Returns a digest of everything a node has at a revision: the SHA-256 of its list as NDJSON, as it
        comes."""
        found = hashlib.sha256()
        last = b""
        target = f"{url}/v1/kv?revision={revision}"
        with self._http.stream("GET", target, headers={"Accept": "application/x-ndjson"}) as answer:
            if answer.status_code != 200:
                raise NodeError(f"{target} answered {answer.status_code}: {answer.read()[:200]!r}")
            for piece in answer.iter_raw():
                found.update(piece)
                last = (last + piece)[-1_000:]
        if (last.rstrip(b"\n").rpartition(b"\n")[2]).startswith(b'{"error"'):
            raise NodeError(f"{target} broke off: {last!r}")
        return found.hexdigest()

    def _get(self, target: str) -> Any:
        return self._checked(self._http.get(target))

    def _checked(self, answer: httpx.Response) -> Any:
        if answer.status_code != 200:
            raise NodeError(f"{answer.request.url} answered {answer.status_code}: {answer.text[:200]}")
        return json.loads(answer.content)


def _unquiet(found: Sequence[Any | None]) -> str | None:
    """Returns what is not quiet yet, or `None`."""
    for status in found:
        if status is None:
            return "a node does not answer"
        name = status["node"]
        if not status["primary"] or sorted(status["view"]["members"]) != sorted(status["roster"]):
            return f"{name} is {status['state']} with {','.join(status['view']['members'])}"
        if status["red"] or status["held_writes"] or status["yellow"]["line"] != status["green"]["line"]:
            return f"{name} has writes that are not green"
        if status["green"]["applied_line"] != status["green"]["line"]:
            return f"{name} has not applied everything yet"
    lines = {(status["green"]["line"], status["green"]["revision"]) for status in found if status is not None}
    return None if len(lines) == 1 else "the nodes are not equally far"
