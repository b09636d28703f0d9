"""A synchronous client of the REST API, for the `corelkv` command.

Of several URLs, the first that can be reached is asked. A write that may have arrived is not sent to another node,
where it would be a second write, unless it has an Idempotency-Key, with which both apply once.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 15.0
"""The default timeout of an answer: more than the 5 s that a node takes by default to answer a write that does not
become green."""


class Unreachable(Exception):
    """No node answered. The message says which were tried, and why each did not."""


class ClientError(Exception):
    """The request cannot be sent, or the answer cannot be understood. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A node's response. Header names are in lower case."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            raise ClientError(
                f"{self.url} answered {self.status} with something that is not JSON: is it a corelkv node?"
            ) from None

    @property
    def message(self) -> str:
        """The message of an error response, or the status and the beginning of the body if it has none."""
        with contextlib.suppress(ClientError):
            content = self.json()
            if isinstance(content, dict) and "message" in content:
                return str(content["message"])
        return f"{self.url} answered {self.status}: {self.body[:200].decode(errors='replace')}"


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    """The path, percent-encoded."""
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    answer_seconds: float = ANSWER_SECONDS

    @property
    def may_repeat(self) -> bool:
        """Whether the request can be sent to a second node without being applied twice."""
        return self.method in ("GET", "HEAD") or "Idempotency-Key" in self.headers

    @property
    def target(self) -> str:
        return self.path + (f"?{urlencode(self.query, quote_via=quote, safe='')}" if self.query else "")


def key_path(key: str) -> str:
    """Returns the path of a key's value. The key is encoded completely, including `/` and `..`, so that no client
    library or proxy interprets a part of it."""
    encoded = quote(key.encode("utf-8", "surrogateescape"), safe="")
    if set(key) <= {"."}:  # `.` and `..` are steps in a path, which clients and proxies take
        encoded = encoded.replace(".", "%2E")
    return f"/v1/kv/{encoded}"


class Client:
    def __init__(self, urls: Sequence[str], connect_seconds: float = CONNECT_SECONDS) -> None:
        """Raises `ClientError` if there is no URL, or one that is not an HTTP URL."""
        self.urls = tuple(url.rstrip("/") for url in urls)
        if not self.urls:
            raise ClientError("there is no URL to ask: give --url http://127.0.0.1:8001")
        for url in self.urls:
            _check_url(url)
        self._connect_seconds = connect_seconds

    def send(self, request: Request) -> Reply:
        """Sends the request to the first node that can be reached. Raises `Unreachable` or `ClientError`."""
        failures = []
        for url in self.urls:
            try:
                return self._send_to(url, request)
            except _NotSent as error:
                failures.append(f"cannot reach {url} ({error})")
            except _NotAnswered as error:
                if not request.may_repeat:
                    raise Unreachable(
                        f"{url} did not answer ({error}): whether it accepted the write is not known. Look before "
                        "writing again, or use --idempotency-key, with which a repeated write applies once"
                    ) from None
                failures.append(f"{url} did not answer ({error})")
        raise Unreachable("; ".join(failures))

    def _send_to(self, url: str, request: Request) -> Reply:
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=self._connect_seconds)
        with contextlib.closing(connection):
            with _translated(_NotSent):
                connection.connect()
            with _translated(_NotAnswered):
                connection.sock.settimeout(request.answer_seconds)
                headers = {"Connection": "close", **request.headers}
                connection.request(request.method, parts.path + request.target, request.body, headers)
                response = connection.getresponse()
                received = {name.lower(): value for name, value in response.getheaders()}
                return Reply(url, response.status, received, response.read())


class _NotSent(Exception):
    """The connection failed before anything was sent."""


class _NotAnswered(Exception):
    """The request may have arrived, but there was no answer."""


@contextlib.contextmanager
def _translated(kind: type[Exception]) -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise kind("it took too long") from None
    except socket.gaierror as error:
        raise kind(f"no such host: {error.strerror}") from None
    except OSError as error:
        raise kind(error.strerror or str(error)) from None
    except http.client.HTTPException as error:
        raise kind(str(error) or type(error).__name__) from None
    except ValueError as error:  # a header that HTTP cannot carry
        raise ClientError(f"cannot send that: {error}") from None


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_right = False
    if not is_right:
        raise ClientError(f"{url!r} is not a URL like http://127.0.0.1:8001")
