"""What the two shells share of httpx: its errors as failures, timeouts, and the settings of its clients."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterable
from uuid import uuid4

import httpx

from kvstore.client.replies import Failure, Reply
from kvstore.client.requests import Request
from kvstore.client.session import cannot_send

CONNECT_SECONDS = 3.0

LIMITS = httpx.Limits(max_connections=1_000, max_keepalive_connections=20)
"""How many connections a client has at most, and how many of them idle. Requests beyond the first wait for one, as
long as they would for an answer. With each request, httpx looks at every idle connection: many of them cost
time."""

NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""After these, nothing of the request has left."""

UNSENDABLE = (httpx.LocalProtocolError, httpx.UnsupportedProtocol)
"""A header or URL that HTTP cannot carry."""


def failure_of(url: str, error: httpx.RequestError) -> Failure:
    """Returns why there is no answer. Raises `ClientError` if the request is one that cannot be sent."""
    if isinstance(error, UNSENDABLE):
        raise cannot_send(error) from None
    return Failure(url, _reason(error), not isinstance(error, NOT_SENT))


def _reason(error: BaseException) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "it took too long"
    causes = list(_causes(error))
    for cause in reversed(causes):
        if isinstance(cause, socket.gaierror):
            return f"no such host: {cause.strerror}"
        if isinstance(cause, OSError) and cause.errno:
            return os.strerror(cause.errno)  # asyncio's own texts differ
    return str(error) or type(error).__name__


def _causes(error: BaseException | None) -> Iterable[BaseException]:
    """The error, what caused it, and so on. An attempt at several addresses of a host has several causes."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for one in error.exceptions:
                yield from _causes(one)
        error = error.__cause__ or error.__context__


def reply_of(url: str, response: httpx.Response, body: bytes) -> Reply:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(url, response.status_code, headers, body)


def built(
    http: httpx.Client | httpx.AsyncClient, url: str, request: Request, connect_seconds: float
) -> httpx.Request:
    """Raises `ClientError` if HTTP cannot carry the request."""
    try:
        return http.build_request(
            request.method,
            url + request.target,
            headers=dict(request.headers),
            content=request.body,
            timeout=httpx.Timeout(request.answer_seconds, connect=connect_seconds),
        )
    except (httpx.InvalidURL, ValueError) as error:
        raise cannot_send(error) from None


def tls_context(urls: Iterable[str]) -> ssl.SSLContext:
    """Returns how certificates are checked. To load the system's authorities takes tens of milliseconds, which a
    client of plain HTTP does not spend: its context trusts nobody, so that https URLs fail instead of going
    unchecked."""
    if any(url.startswith("https:") for url in urls):
        return ssl.create_default_context()
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def draw() -> str:
    """Draws what nobody else draws, also in a forked process."""
    return uuid4().hex
