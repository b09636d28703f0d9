"""One request and all its attempts: which node, how soon again, and what to make of several answers.

A call goes round the known nodes, beginning with the preferred one. While a node of the round has not been tried,
a failure is followed by the next node at once; after the round there is a pause, and then another round. The pause
grows, is drawn at random, and is no shorter than the Retry-After of the node that may be asked first.

What a failed call says about the write follows from all its attempts, not from the last: once a copy may have been
accepted, only an answer that settles every copy with its Idempotency-Key (applied, rejected) makes that known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from kvstore.client.errors import ClientError, CorelError, Happened, Unreachable
from kvstore.client.replies import Failure, Reply, error_of, judge
from kvstore.client.requests import Request
from kvstore.client.retrying import RetryPolicy
from kvstore.client.roster import Roster
from kvstore.client.steps import Pause, Steps, exchange, open_stream

LEARNING_SECONDS = 2.0
"""The timeout of asking for the roster, which follows a call that was answered already."""


class Attempts:
    """The attempts of one call so far."""

    def __init__(self, request: Request, policy: RetryPolicy, began: float) -> None:
        self.request = request
        self.round = 0
        self._tried: set[str] = set()
        """The nodes that were asked in this round."""
        self._not_before: dict[str, float] = {}
        """When a node may be asked again that sent Retry-After."""
        self._ends_with_round = False
        self._policy = policy
        self._end = began + policy.total_seconds
        self._count = 0
        self._is_open = False
        """Whether a copy may have been accepted."""
        self._last_reply: Reply | None = None
        self._failures: dict[str, Failure] = {}

    def take(self, answer: Reply | Failure, now: float) -> Reply | None:
        """Takes in an answer. Returns it if it is a success or a 304, `None` if the request is to be repeated, and
        raises the error that ends the call."""
        self._count += 1
        self._tried.add(answer.url)
        judgement = judge(self.request, answer)
        self._is_open = (self._is_open and not judgement.settles_copies) or judgement.happened is Happened.UNKNOWN
        if isinstance(answer, Reply):
            self._last_reply = answer
            if judgement.is_final:
                if answer.is_success or answer.status == 304:
                    return answer
                raise self.error()
            self._ends_with_round |= judgement.once_each
            if answer.retry_after is not None:
                self._not_before[answer.url] = now + answer.retry_after
        else:
            self._failures[answer.url] = answer
        if not self.request.may_repeat and judgement.happened is Happened.UNKNOWN:
            raise self.error()
        return None

    def next_node(self, roster: Roster, now: float, first: str | None) -> str | None:
        """Returns the node to ask next in this round, or `None` if the round is over."""
        patient = {url for url, then in self._not_before.items() if then > now}
        return roster.next(now, self._tried | patient, first)

    def begin_round(self, roster: Roster, now: float, rng: Random) -> float:
        """Returns how long to wait for the next round. Raises the call's error if there is none."""
        self.round += 1
        self._tried.clear()
        free_at = min(self._not_before.get(url, now) for url in roster.urls)
        wait = max(free_at - now, 0.0) + self._policy.wait(self.round, rng)
        if self._ends_with_round or not self.may_go_on(now, wait):
            raise self.error()
        return wait

    def may_go_on(self, now: float, wait: float = 0.0) -> bool:
        return self._count == 0 or (self._count < self._policy.attempts_max and now + wait <= self._end)

    def error(self) -> CorelError:
        """Returns what to raise if there is no other attempt. What a node said is worth more than that others
        said nothing."""
        happened = Happened.UNKNOWN if self._is_open else Happened.NO
        if self._last_reply is not None:
            return error_of(self._last_reply, happened)
        what = "; ".join(failure.sentence for failure in self._failures.values())
        if self._is_open and not self.request.may_repeat:
            what += (
                ": whether it accepted the write is not known. Look before writing again, or use an idempotency "
                "key, with which a repeated write applies once"
            )
        return Unreachable(what, happened)


class Session:
    """What a client knows from call to call: its roster and its policy. It does no I/O; its methods are steps."""

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        prefer: str | None,
        policy: RetryPolicy,
        discover: bool,
        rng: Random,
        clock: Callable[[], float],
    ) -> None:
        self.roster = Roster(urls, prefer, rng)
        self.policy = policy
        self.rng = rng
        self.clock = clock
        self._discover = discover

    def send(self, request: Request) -> Steps[Reply]:
        """Sends the request to the first node that can be reached, and returns whatever it answers. Raises
        `Unreachable`."""
        attempts = Attempts(request, self.policy, self.clock())
        for url in self.roster.order(self.clock()):
            answer = yield from exchange(url, request)
            if isinstance(answer, Reply):
                return answer
            attempts.take(answer, self.clock())
        raise attempts.error()

    def call(self, request: Request, first: str | None = None) -> Steps[Reply]:
        """Sends the request, again and elsewhere if need be, until it has an answer. Returns a success or a 304,
        and raises the error of everything else. `first` is the node to ask before all others."""
        attempts = Attempts(request, self.policy, self.clock())
        while True:
            url = yield from self._next_node(attempts, first)
            answer = yield from exchange(url, request)
            self._note(answer)
            if (reply := attempts.take(answer, self.clock())) is not None:
                yield from self._learn(url)
                return reply
            yield from self._spare_the_others(attempts, answer)

    def open(self, request: Request, attempts: Attempts) -> Steps[Reply]:
        """Opens a stream as `call` sends a request, and returns the head of its 200."""
        while True:
            url = yield from self._next_node(attempts, None)
            answer = yield from open_stream(url, request)
            self._note(answer)
            if (reply := attempts.take(answer, self.clock())) is not None:
                if reply.status != 200:
                    raise reply.not_understood("no stream")
                yield from self._learn(url)
                return reply
            yield from self._spare_the_others(attempts, answer)

    def _next_node(self, attempts: Attempts, first: str | None) -> Steps[str]:
        """Returns the node to ask next. Waits between two rounds. Raises the call's error if there is no other
        attempt."""
        while True:
            now = self.clock()
            url = attempts.next_node(self.roster, now, first)
            if url is not None and attempts.may_go_on(now):
                return url
            if url is not None:
                raise attempts.error()
            yield Pause(attempts.begin_round(self.roster, now, self.rng))

    def _spare_the_others(self, attempts: Attempts, answer: Reply | Failure) -> Steps[None]:
        """Waits before another node is asked, if this one said that it is overloaded."""
        if isinstance(answer, Reply) and answer.status == 429:
            wait = self.policy.wait(attempts.round + 1, self.rng)
            if attempts.may_go_on(self.clock(), wait):
                yield Pause(wait)

    def _note(self, answer: Reply | Failure) -> None:
        """Remembers which nodes are of use now."""
        if isinstance(answer, Failure):
            self.roster.avoid(answer.url, self.clock() + self.policy.avoid_seconds)
        elif answer.retry_after is not None:
            self.roster.avoid(answer.url, self.clock() + answer.retry_after)
        else:
            self.roster.answered(answer.url)

    def heard(self, nodes: object) -> None:
        """Takes in the `nodes` of `/v1/cluster`, unless this client is to know the URLs that it was given only."""
        if self._discover:
            self.roster.learn(nodes, self.clock())

    def _learn(self, url: str) -> Steps[None]:
        """Asks the node that has just answered for the roster, if it is time to. That nobody tells is no error."""
        if not self._discover or not self.roster.is_stale(self.clock()):
            return
        answer = yield from exchange(url, Request("GET", "/v1/cluster", answer_seconds=LEARNING_SECONDS))
        nodes: object = None
        if isinstance(answer, Reply) and answer.is_success:
            nodes = answer.problem.get("nodes")
        self.heard(nodes)


def cannot_send(why: object) -> ClientError:
    return ClientError(f"cannot send that: {why}")
