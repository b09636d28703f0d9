"""Taking over the green prefix of another node's log without its messages (decision 28).

Green messages are final, so a node that lacks many of them need not be sent each: it takes over the state that
they lead to, at a line, and what the log has to know of them. It does so outside any view, from the disk of one
node, while that node goes on.

What it knows afterwards is less than what a member of the last primary component knows: everything up to the line
is final, but there may be more that is yellow at all members of that component, or green at some. So it says of
itself that it has *learned* of the primary component: whoever was in it knows more. It has lost nothing that
counts. What was green in an earlier component was in the queue to which the members of that one committed (its
*base*), and the line is not before the end of that. So its own yellow messages are green now, or are red ones.

A cluster that was begun anew from a backup has green messages before its first primary component, and cannot
retransmit them: its logs are cut there. An empty disk takes these over too, since a majority may need its node. It
knows of no primary component then, as before. (A disk that an older version wrote does not know either which
primary component was established. It is not cut before it does, so nobody needs to take over what it has.)"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from corel.message_queue import chained
from corel.messages import NO_VIEW, is_bound, is_folded
from corel.participation import joint_memory, unmergeable
from corel.storage import Lines, Record, Yellow
from transport import SEQUENCE_MAX


class NotAhead(Exception):
    """The other node's log cannot be taken over: this node knows as much, or belongs to another cluster, or the
    other has not established a primary component. The message says which."""


class TakenOver(NamedTuple):
    """What is on the disk of a node that has taken over a green prefix."""

    lines: Lines
    yellow: Yellow
    records: tuple[Record, ...]
    """The green messages from the cut on, then the node's own messages that are not green."""


def check_ahead(own: Lines, source: Lines) -> None:
    """Raises `NotAhead` unless the log of `source` can be taken over by the node with these lines."""
    is_empty = not (own.green or own.committed)
    if not source.established and not (is_empty and source.cut):
        raise NotAhead("the other node knows of no primary component that was established")
    if _is_bound(own) and own.generation != source.generation:
        raise NotAhead("the other node belongs to another generation of the cluster")
    if not source.established:
        return
    if source.green < source.established_base:
        raise NotAhead("the other node does not have everything that its last primary component began with yet")
    if own.committed > source.established or (own.committed == source.established and not own.is_learned):
        raise NotAhead("this node knows of the same primary component, or of a later one")
    if own.green > source.green or (own.committed == source.established and own.green == source.green):
        raise NotAhead("this node knows as many green messages as the other, or more")


def take_over(
    node: str, own: Lines, own_messages: Iterable[Record], source: Lines, cut: int, tail: Sequence[Record]
) -> TakenOver:
    """Returns what the disk of this node holds once it has taken over the green prefix of `source`. `own_messages`
    are its messages that are not green, in the order of their arrival, `tail` the other's green messages from the
    cut on. Raises `NotAhead`.

    What the disk says of its vote stays as it is: an elder disk, or an old copy, is still known for what it is
    (`participation`)."""
    check_ahead(own, source)
    own_messages = list(own_messages)
    last, folded = dict(source.streams), dict(source.folded)
    _check_mergeable(node, own, own_messages, source)

    def last_of(record: Record) -> int:
        stream = record.id.stream
        return SEQUENCE_MAX if is_folded(stream, folded) else last.get(stream, 0)

    kept = [record for record in own_messages if record.id.sequence > last_of(record)]
    records = tuple([record._replace(arrival=arrival, primary=0) for arrival, record in enumerate([*tail, *kept])])
    binding = source if _is_bound(source) else own
    memories = [one.participants for one in (own, source) if one.generation == binding.generation]
    lines = Lines(
        committed=source.established,
        attempted=own.attempted,
        is_voter=own.is_voter,
        green=source.green,
        green_digest=source.green_digest,
        base=source.green,
        base_digest=source.green_digest,
        streams=source.streams,
        folded=source.folded,
        next_arrival=len(records),
        open_from=len(tail),
        tail_from=len(records),
        clock=max(own.clock, source.clock),
        attempted_view=NO_VIEW if binding is source else own.attempted_view,
        generation=binding.generation,
        participants=joint_memory(memories),
        cut=cut,
        is_learned=source.established > 0,
        established=source.established,
        established_base=source.established_base,
        voter_since=own.voter_since,
    )
    return TakenOver(lines, Yellow(source.green, ()), records)


def _check_mergeable(node: str, own: Lines, own_messages: Iterable[Record], source: Lines) -> None:
    """Raises `NotAhead` if the disk of this node was replaced by another one, and has messages of streams that the
    other has folded away: nobody can tell whether they are final."""
    remembered = [one.voter_since for one in source.participants if one.name == node]
    if own.voter_since >= max(remembered, default=0):
        return
    theirs, ours = dict(source.folded), dict(own.folded)
    lost = [
        record.id
        for record in own_messages
        if is_folded(record.id.stream, theirs) and not is_folded(record.id.stream, ours)
    ]
    if lost:
        raise NotAhead(unmergeable(lost))


def _is_bound(lines: Lines) -> bool:
    return is_bound(lines.committed, lines.generation, lines.attempted_view)


def continued(source: Lines, records: Sequence[Record]) -> Lines:
    """Returns the lines of the other node after these green messages, which follow its green line, as far as
    they can be told from the messages. What it says of primary components is of before: these messages may have
    become green in a later one, so its log cannot be taken over with these lines. That needs lines that were
    read together with the last message."""
    streams = dict(source.streams) | {record.id.stream: record.id.sequence for record in records}
    return replace(
        source,
        green=source.green + len(records),
        green_digest=chained(source.green_digest, [record.entry() for record in records]),
        streams=tuple(sorted(streams.items())),
        clock=max([source.clock, *[record.clock for record in records]]),
    )


def begun_anew(
    source: Lines, generation: bytes, cut: int, kept: int, open_messages: Sequence[Record]
) -> TakenOver:
    """Returns the log of a node of a new generation of the cluster, which begins with the green prefix of `source`
    and with messages that are not green there. `kept` green messages are before these on its disk.

    It may vote, as on the first start of a new cluster, and is bound to its generation from the start: a node of
    the old one that is left over can neither join nor vote (decision 20). If it were bound to none, it would adopt
    the old generation when it meets such a node, and with it all that was to be left behind."""
    records = tuple(
        [record._replace(arrival=arrival, primary=0) for arrival, record in enumerate(open_messages, kept)]
    )
    lines = Lines(
        is_voter=True,
        green=source.green,
        green_digest=source.green_digest,
        base=source.green,
        base_digest=source.green_digest,
        streams=source.streams,
        folded=source.folded,
        next_arrival=kept + len(records),
        open_from=kept,
        tail_from=kept + len(records),
        clock=max([source.clock, *[record.clock for record in records]]),
        generation=generation,
        cut=cut,
    )
    return TakenOver(lines, Yellow(source.green, ()), records)
