"""The HTTP calls with which a node that learns asks another for its state (`api/snapshots.py` answers them).

They block, so they are made in a thread."""

from __future__ import annotations

import base64
import http.client
import json
import socket
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from kvstore.node.learning import SnapshotGone, SourceError
from kvstore.node.snapshot_format import FRAME_BYTES_MAX

CONNECT_SECONDS = 2.0
"""How long a source may take to accept a connection. A host that is down takes this long, `ATTEMPTS_MAX` times."""

ANSWER_SECONDS = 10.0
"""How long a source may be silent before or in the middle of an answer. A source whose disk stalls takes longer,
and is asked again."""

_PASSWORD_STATUSES = (401, 407)
_REACH_DIRECTLY = "set node_urls to addresses at which the nodes reach each other without it"


class HandedOut(NamedTuple):
    """A snapshot that a source has open."""

    id: str
    header: bytes


class SourceClient:
    """The connection to one source."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._prefix = urlsplit(url).path.rstrip("/")
        self._connection: http.client.HTTPConnection | None = None
        self._is_aborted = False

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def abort(self) -> None:
        """Ends a call that another thread is making, which fails then, and every later one. That thread may close
        the connection meanwhile, and forget its socket."""
        self._is_aborted = True
        connection = self._connection
        connected = None if connection is None else connection.sock
        if connected is not None:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def open(self) -> HandedOut:
        """Has the source open a snapshot."""
        content = self._call("POST", "/v1/snapshots")
        try:
            answer = json.loads(content)
            return HandedOut(str(answer["id"]), base64.b64decode(answer["header"], validate=True))
        except (ValueError, KeyError, TypeError) as error:
            raise SourceError(f"its answer makes no sense ({error!r}): is {self._url} a node?") from error

    def chunk(self, snapshot: str, table: str, after: bytes) -> bytes:
        key = base64.urlsafe_b64encode(after).decode().rstrip("=")
        return self._call("GET", f"/v1/snapshots/{quote(snapshot)}/{table}?after={key}")

    def tail(self, snapshot: str, first: int) -> bytes:
        return self._call("GET", f"/v1/snapshots/{quote(snapshot)}/tail?from={first}")

    def log(self, first: int) -> bytes:
        return self._call("GET", f"/v1/snapshots/log?from={first}")

    def forget(self, snapshot: str) -> None:
        """Lets the source close a snapshot. If that fails, the source closes it by itself in a while."""
        with suppress(SourceError):
            self._call("DELETE", f"/v1/snapshots/{quote(snapshot)}")

    def _call(self, method: str, path: str) -> bytes:
        try:
            connection = self._connected()
            if self._is_aborted:
                raise ConnectionAbortedError("the call has been ended")
            connection.request(method, self._prefix + path)
            response = connection.getresponse()
            content = response.read(FRAME_BYTES_MAX + 1)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            reason = str(error) or type(error).__name__
            raise SourceError(f"it cannot be reached at {self._url}: {reason}") from error
        if len(content) > FRAME_BYTES_MAX:
            self.close()
            raise SourceError(f"its answer has more than {FRAME_BYTES_MAX:,} bytes")
        if response.status < 300:
            return content
        told = _message(content) or response.reason
        if response.status in (404, 410):
            raise SnapshotGone(f"it refuses ({response.status}): {told}")
        if response.status in _PASSWORD_STATUSES:
            told += f". Something at {self._url} asks for a password, and nodes send none: {_REACH_DIRECTLY}"
        raise SourceError(f"it refuses ({response.status}): {told}")

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            parts = urlsplit(self._url)
            kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
            self._connection = connection = kind(parts.hostname or "", parts.port, timeout=CONNECT_SECONDS)
            connection.connect()
            connection.sock.settimeout(ANSWER_SECONDS)
            connection.timeout = ANSWER_SECONDS  # where it connects again by itself
        return self._connection


def _message(content: bytes) -> str:
    """Returns the sentence of an error response, without its full stop; empty if there is none."""
    with suppress(ValueError, KeyError, TypeError):
        return str(json.loads(content)["message"]).rstrip(".")
    return ""
