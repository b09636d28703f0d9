"""The nodes that a client knows, and in which order it asks them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from kvstore.client.errors import ClientError
from kvstore.client.requests import checked_url

LEARNED_SECONDS = 60.0
"""After a failure, the roster is asked for again if it is older than this."""


class Roster:
    """The preferred node comes first, then the others in an order that each client draws: when a node fails, its
    clients spread over all others. A node that failed comes last for a while."""

    def __init__(self, urls: str | Sequence[str], prefer: str | None, rng: Random) -> None:
        given = [urls] if isinstance(urls, str) else list(urls)
        self._given = tuple(dict.fromkeys(checked_url(url) for url in given))
        if not self._given:
            raise ClientError("there is no URL to ask: give --url http://127.0.0.1:8001")
        self._prefer = prefer
        self._rng = rng
        self._urls = _with_first(self._given, prefer)
        self._avoided: dict[str, float] = {}
        self._learned_at: float | None = None
        self._failed_since_learned = False

    @property
    def urls(self) -> tuple[str, ...]:
        """All known nodes, the preferred one first."""
        return self._urls

    def order(self, now: float) -> tuple[str, ...]:
        """Returns all known nodes in the order in which to ask them now."""
        urls = self._urls  # another thread may learn meanwhile
        fine = [url for url in urls if self._avoided.get(url, now) <= now]
        return (*fine, *(url for url in urls if url not in fine))

    def next(self, now: float, tried: Collection[str], first: str | None = None) -> str | None:
        """Returns the node to ask next, or `None` if all have been tried. `first` is asked before all others."""
        if first is not None and first not in tried:
            return first
        return next((url for url in self.order(now) if url not in tried), None)

    # What is learned on the way

    def avoid(self, url: str, until: float) -> None:
        self._avoided[url] = until
        self._failed_since_learned = True

    def answered(self, url: str) -> None:
        self._avoided.pop(url, None)

    def is_stale(self, now: float) -> bool:
        """Returns whether it is time to ask for the roster."""
        if self._learned_at is None:
            return True
        return self._failed_since_learned and now - self._learned_at > LEARNED_SECONDS

    def learn(self, nodes: object, now: float) -> None:
        """Takes in the `nodes` of `/v1/cluster`; `None` if nobody told. The given URLs stay: a client may reach
        nodes by other addresses than the nodes know of themselves."""
        self._learned_at = now
        self._failed_since_learned = False
        found = list(_named(nodes))
        others = [url for _, url in found if url not in self._given]
        self._rng.shuffle(others)
        preferred = dict(found).get(self._prefer or "", self._prefer)
        self._urls = _with_first(dict.fromkeys((*self._given, *others)), preferred)


def _named(nodes: object) -> Iterable[tuple[str, str]]:
    """The name and URL of each node whose URL is known and right."""
    if not isinstance(nodes, list):
        return
    for node in nodes:
        content: Mapping[str, Any] = node if isinstance(node, dict) else {}
        if isinstance(content.get("url"), str) and isinstance(content.get("name"), str):
            try:
                yield content["name"], checked_url(content["url"])
            except ClientError:
                continue


def _with_first(urls: Iterable[str], first: str | None) -> tuple[str, ...]:
    found = tuple(urls)
    wanted = None if first is None else first.rstrip("/")
    return tuple(sorted(found, key=lambda url: url != wanted))
