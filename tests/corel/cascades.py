"""Changes in the middle of changes, enumerated: a view is cut after every single step between its beginning and
its end, in a primary component or without one. Nodes may crash at that very step, and the write they had under way
may be lost or kept. Then each part of the cut comes to rest, accepts messages, and all merge again.

    python -m tests.corel.cascades --jobs 2               # every urgency, any node crashing, early merges: hours
    python -m tests.corel.cascades --jobs 2 --every 101   # minutes

Demanded of each case: the invariants of section 3.4 at every step; that each part with a majority, and no other,
is a primary component at rest; and that in the end everything that was ever on a disk is green everywhere, in one
order."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from itertools import islice
from multiprocessing import Pool
from typing import NamedTuple, TypeAlias

from corel.config import CorelConfig
from corel.stages import Stage
from tests.corel.harness import Act, Do, LogCluster, Urgency, in_step, one_by_one

Parts: TypeAlias = tuple[str, ...]


# In which order what is possible happens


def disks_last(act: Act) -> tuple[int, int]:
    """No node completes a write while anything else can happen."""
    return act.do is Do.SYNC, ord(act.name)


def delivery_last(act: Act) -> tuple[int, int]:
    """Everything is on disk, and known to be, before its order is known."""
    return act.do is Do.DELIVER, ord(act.name)


def last_first(act: Act) -> tuple[int, int]:
    """The same as `one_by_one`, from the other end."""
    return -ord(act.name), one_by_one(act)[1]


URGENCIES: dict[str, Urgency] = {
    urgency.__name__: urgency for urgency in (in_step, disks_last, delivery_last, one_by_one, last_first)
}


# What comes before the view that is cut


def _cluster(everybody: str, urgency: Urgency) -> LogCluster:
    """Returns a cluster without the logs' own checks of invariants: the checkers see more, and cost less."""
    config = CorelConfig(write_gather_ms=0.0, debug_invariants=False)
    return LogCluster(everybody, config=config, urgency=urgency, in_bursts=True)


def merge_of_a_primary(urgency: Urgency) -> LogCluster:
    """A primary component with green and yellow messages meets a minority with red ones, of higher and lower
    clocks."""
    cluster = _cluster("abcde", urgency)
    cluster.settle("abcde")
    cluster.submit("e", "old")
    cluster.run()
    cluster.settle("abc", "de")
    cluster.advance_clock("e", 50)
    cluster.submit("d", "d1 d2")
    cluster.submit("e", "e1")
    cluster.submit("a", "a1")
    cluster.run()
    cluster.hold |= {Act("c", Do.HEAR), Act("b", Do.RECEIVE)}
    cluster.submit("b", "b1")
    cluster.run()
    cluster.submit("c", "c1")
    cluster.run()
    cluster.hold.clear()
    cluster.views("abcde")
    return cluster


def faults_in_a_primary(urgency: Urgency) -> LogCluster:
    """A primary component falls apart in the middle of ordering messages, its parts end it differently, and a bare
    majority is left: a part of it together with nodes that were not there may be the next one."""
    cluster = _cluster("abcde", urgency)
    cluster.settle("abcde")
    cluster.submit("a", "a1")
    cluster.run()
    cluster.hold.add(Act("b", Do.HEAR))
    cluster.submit("e", "e1")
    cluster.run()
    cluster.deaf |= {("a", "c"), ("b", "a"), ("c", "a"), ("d", "a"), ("e", "a")}
    cluster.advance_clock("a", 50)
    cluster.submit("a", "a2 a3")
    cluster.submit("c", "c1")
    cluster.run()
    cluster.hold.clear()
    cluster.settle("a", "bc", "de")
    cluster.submit("d", "d1")
    cluster.run()
    cluster.views("abc")
    cluster.submit("a", "a4")
    cluster.submit("c", "c2")
    return cluster


def forgetful_disk(urgency: Urgency) -> LogCluster:
    """One node comes back with an empty disk, and another that was away all the time."""
    cluster = _cluster("abcde", urgency)
    cluster.settle("abcd", "e")
    cluster.submit("a", "a1 a2")
    cluster.submit("e", "e1")
    cluster.run()
    cluster.crash("b")
    cluster.replace_disk("b")
    cluster.start("b")
    cluster.run()
    cluster.submit("b", "b1")
    cluster.run()
    cluster.views("abcde")
    return cluster


def halves(urgency: Urgency) -> LogCluster:
    """Two halves without a primary component, each with messages of its own, meet."""
    cluster = _cluster("abcd", urgency)
    cluster.settle("abcd")
    cluster.submit("b", "old")
    cluster.run()
    cluster.settle("ab", "cd")
    cluster.advance_clock("c", 20)
    cluster.submit("a", "a1")
    cluster.submit("c", "c1 c2")
    cluster.run()
    cluster.submit("b", "b1")
    cluster.run()
    cluster.views("abcd")
    return cluster


def three_and_one(urgency: Urgency) -> LogCluster:
    """Three of four were primary, and lost one in the middle of a commitment; the fourth was alone."""
    cluster = _cluster("abcd", urgency)
    cluster.settle("abc", "d")
    cluster.submit("a", "a1")
    cluster.submit("d", "d1")
    cluster.run()
    cluster.hold.add(Act("c", Do.RECEIVE))
    cluster.submit("b", "b1 b2")
    cluster.run()
    cluster.hold.clear()
    cluster.views("abcd")
    cluster.run_until(lambda: cluster["b"].committed > 1)
    cluster.restart("b")
    cluster.views("acd")
    cluster.run_until(lambda: cluster.stages("acd") & {Stage.ESTABLISHING})
    cluster.views("abcd")
    return cluster


class Story(NamedTuple):
    """A beginning, and the parts to which its view is cut."""

    begin: Callable[[Urgency], LogCluster]
    partitions: tuple[Parts, ...]


_OF_FIVE = (("abc", "de"), ("ad", "bce"), ("ab", "c", "de"))
_OF_A_BARE_MAJORITY = (("ab", "cde"), ("ade", "bc"), ("a", "bde", "c"))
_OF_FOUR = (("ab", "cd"), ("acd", "b"), ("a", "bc", "d"))

STORIES: dict[str, Story] = {
    "merge of a primary": Story(merge_of_a_primary, _OF_FIVE),
    "faults in a primary": Story(faults_in_a_primary, _OF_A_BARE_MAJORITY),
    "forgetful disk": Story(forgetful_disk, _OF_FIVE),
    "halves": Story(halves, _OF_FOUR),
    "three and one": Story(three_and_one, _OF_FOUR),
}


class Case(NamedTuple):
    """After `cut` steps the node `crash`, if there is one, crashes and comes back, and the view falls into parts;
    after `again` more steps, or when all is quiet, they merge."""

    story: str
    urgency: str
    cut: int
    parts: Parts
    crash: str
    is_kept: bool
    again: int | None = None


def begin(story: str, urgency: str) -> LogCluster:
    """Returns the story's cluster when the view begins; what follows comes message by message."""
    cluster = STORIES[story].begin(URGENCIES[urgency])
    cluster.in_bursts = False
    return cluster


class Point(NamedTuple):
    """Where a view can be cut: which node acted last, and which nodes have a write under way."""

    last: str
    writing: str


def points(story: str, urgency: str) -> list[Point]:
    """Returns a point for every step that happens if the view is not cut."""
    cluster = begin(story, urgency)
    found: list[Point] = []
    name = cluster.everybody[0]
    while True:
        writing = [other for other in cluster.everybody if cluster.disk(other).under_way is not None]
        found.append(Point(name, "".join(writing)))
        act = cluster.step()
        if act is None:
            return found
        name = act.name


def cases(story: str, urgency: str, is_thorough: bool = False) -> Iterator[Case]:
    """Yields, at every point, a cut into each of the partitions without a crash, and into one of them (or into
    each, for a bare majority) with a crash of the node that acted last. If thorough, also into each of them with a
    crash of any node, and with the merge coming before the parts are at rest."""
    begin_, partitions = STORIES[story]
    everybody = begin_(URGENCIES[urgency]).everybody
    for cut, point in enumerate(points(story, urgency)):
        for number, parts in enumerate(partitions):
            yield Case(story, urgency, cut, parts, "", False)
            if not (is_thorough or partitions is _OF_A_BARE_MAJORITY or number == cut % len(partitions)):
                continue
            for name in everybody if is_thorough else point.last:
                yield Case(story, urgency, cut, parts, name, False)
                if name in point.writing:
                    yield Case(story, urgency, cut, parts, name, True)
            for again in range(0, 120, 7) if is_thorough else ():
                yield Case(story, urgency, cut, parts, point.last, cut % 2 == 0, again)


def run(case: Case) -> None:
    cluster = begin(case.story, case.urgency)
    for _ in range(case.cut):
        cluster.step()
    if case.crash:
        cluster.restart(case.crash, case.is_kept)
    cluster.in_bursts = case.again is None
    cluster.views(*case.parts)
    for number, part in enumerate(case.parts):
        cluster.submit(part[0], f"late{number}")
    if case.again is None:
        cluster.run()
        for part in case.parts:
            voters = [name for name in part if cluster[name].is_voter]
            expected = Stage.PRIMARY if cluster.roster.is_majority(voters) else Stage.NON_PRIMARY
            assert cluster.stages(part) == {expected}, f"{part}: {cluster}"
    else:
        for _ in range(case.again):
            cluster.step()
    cluster.in_bursts = True
    cluster.views(cluster.everybody)
    cluster.submit(cluster.everybody[-1], "last")
    cluster.run()
    cluster.check_finished()


def failure(case: Case) -> str | None:
    try:
        run(case)
    except Exception as error:
        return f"{case}: {type(error).__name__}: {error}"
    return None


def main() -> None:
    parser = ArgumentParser(description="Cut views after every step of recovery and establishment.")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--every", type=int, default=1, help="try one case in so many")
    arguments = parser.parse_args()
    chosen = [
        case
        for story in STORIES
        for urgency in URGENCIES
        for case in islice(cases(story, urgency, is_thorough=True), 0, None, arguments.every)
    ]
    print(f"{len(chosen)} cases", flush=True)
    with Pool(arguments.jobs) as pool:
        complaints = [complaint for complaint in pool.imap(failure, chosen, chunksize=64) if complaint is not None]
    print("\n".join(complaints) or "all well")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
