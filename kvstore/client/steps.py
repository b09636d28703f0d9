"""What the pure part of the client asks of its shell: a small vocabulary of steps.

Everything that a client does is a generator that yields steps and is sent their answers:

    steps = calls.put("k", b"v")                  shell:  answer = None
        yield Exchange(url, request)                      while True:
        reply = (what was sent in)                            step = steps.send(answer)
        yield Pause(0.05)                                     answer = perform(step)
        ...                                               except StopIteration as end:
        return Receipt(...)                                   return end.value

So there is one implementation of retries, failover, watches and locks, and the synchronous and the asynchronous
client differ only in how they perform a step. A shell owes the generator three things: it performs each step
before the next is asked for; it answers with what the step's docstring says and raises nothing that the step can
answer; and when it gives up on a generator it closes it, and the stream that it had opened."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from kvstore.client.replies import Failure, Reply
from kvstore.client.requests import Request

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Exchange:
    """Send the request there. Answer: `Reply` or `Failure`."""

    url: str
    request: Request


@dataclass(frozen=True, slots=True)
class Open:
    """Send the request there, and keep a 200 open as the stream. Answer: `Reply`, whose body is empty if it is a
    200, or `Failure`."""

    url: str
    request: Request


@dataclass(frozen=True, slots=True)
class Read:
    """Wait for more of the open stream. Answer: bytes, which are empty at its end, or `Failure`."""


@dataclass(frozen=True, slots=True)
class Close:
    """Close the stream. Answer: `None`."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Answer `None` after this time."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Emit(Generic[T_co]):
    """Hand this to the application that iterates. Answer: `None`, when it asks for more."""

    item: T_co


Step: TypeAlias = Exchange | Open | Read | Close | Pause
Answer: TypeAlias = Reply | Failure | bytes | None
Steps: TypeAlias = Generator[Step, Answer, T]
"""A call: some steps, and then its result."""
Feed: TypeAlias = Generator[Step | Emit[T], Answer, None]
"""An iteration: some steps, with items between them."""


def exchange(url: str, request: Request) -> Steps[Reply | Failure]:
    return _heard((yield Exchange(url, request)))


def open_stream(url: str, request: Request) -> Steps[Reply | Failure]:
    return _heard((yield Open(url, request)))


def read_stream() -> Steps[bytes | Failure]:
    answer = yield Read()
    if not isinstance(answer, (bytes, Failure)):
        raise TypeError(f"a shell answered Read with {answer!r}")
    return answer


def _heard(answer: Answer) -> Reply | Failure:
    if not isinstance(answer, (Reply, Failure)):
        raise TypeError(f"a shell answered a request with {answer!r}")
    return answer
