"""Generates `docs/journal.md` from the schema: `python -m kvstore.journal_schema.document > docs/journal.md`."""

from __future__ import annotations

from collections.abc import Iterator

from kvstore.journal_schema import SCHEMA

_LAYERS = {
    "log": "Messages and primary components",
    "store": "Writes and answers",
    "membership": "Views",
    "transport": "The network",
    "node": "The node",
}


def render_markdown() -> str:
    """Returns the text of `docs/journal.md`."""
    return "\n".join([_INTRODUCTION, *_render_events(), *_render_fields(), ""])


_INTRODUCTION = """# The journal

<!-- Generated: `python -m kvstore.journal_schema.document > docs/journal.md`. The source of the tables is
kvstore/journal_schema/schema.json. -->

Every node writes what happens to messages and to the group into `DATA/journal`: one JSON object per line, flat,
so that one structure of nullable columns reads all of it. Together with the log these are the replication logs
that `spark/` analyses. It is on by default (`corelkv serve` and `corelkv cluster`); `--no-journal` turns it
off. [performance.md](performance.md) has its cost.

## One message

In the order in which it happens: `sent` at its sender and `received` at the others; `logged` at each of them,
which makes it yellow in a primary component; `green`, with its position; `applied`, with the revision after it;
and at the node that took the writes `acknowledged`, with what every client was told. In a component without a
primary it is logged red, acknowledged as pending, `recovered` by the others at the merge, and has become
`yellow` with the next commitment. A message that is green elsewhere when a node recovers it may be green there
before it is logged there.

Records are batches: of all messages that were handled in one step, or all answers that were given in one. So
their number grows with messages, not with writes.

## Files

- `journal-<incarnation>-<number>.jsonl` is finished and never changes. Names sort by time.
- `_journal-<incarnation>-<number>.jsonl` is being written. Spark and Hadoop skip names that begin with `_`. It
  is finished, which means renamed, at `journal_file_bytes_max`, after `journal_file_s`, at the end of the
  incarnation, or by the next start if the process was killed.
- When all files together would exceed `journal_bytes_max`, the oldest are deleted.

A reader must know that:

1. The last line of a file may be torn, after a crash or a power failure. Skip it, and count it. Nothing is ever
   appended to such a file. (A full disk tears no line: what a failed write left is cut off.)
2. Events are written ten times a second and are not synced: a process that is killed loses up to 100 ms of
   them, a machine that loses power may lose more. An incarnation without `stopped` at its end was killed.
3. Where the journal's disk was full or too slow, events are missing, and a `gap` record says how many. The node
   goes on as if nothing had happened; its status warns.
4. Fields that are absent are null. Fields and events that a reader does not know are to be ignored: `version`
   changes only when a field changes its type or its meaning, or goes.
5. `monotonic_ms` orders the records of one incarnation. Across machines only `wall_ms` can be compared, as far
   as the clocks agree; the difference between clocks can be estimated from `sent` and `received` in both
   directions.
6. Keys appear in `outcome_changed`. Values never appear.

## Levels

By default there is a record for each step of messages of the log, for everything that is unusual on the network
(NACKs, retransmissions, blocking), and every ten seconds one for each link with what came over it. With
`transport.journal_packets` there are also records for each packet; they are for the study of the transport, and
are marked *packets* below.

In events of the network `first`, `last` and `firsts` are sequences of the transport, which are not those of
message ids.
"""


def _render_events() -> Iterator[str]:
    yield "## Events"
    for layer, title in _LAYERS.items():
        yield f"\n### {title}\n"
        yield "| event | fields | what it means |"
        yield "|---|---|---|"
        for name, event in SCHEMA.events.items():
            if event.layer == layer:
                level = " (*packets*)" if event.is_packet_level else ""
                yield f"| `{name}`{level} | {', '.join(f'`{one}`' for one in event.fields)} | {event.meaning} |"
    yield ""


def _render_fields() -> Iterator[str]:
    common = ", ".join(f"`{one}`" for one in SCHEMA.common)
    yield f"## Fields\n\nVersion {SCHEMA.version}. Every record has {common}.\n"
    yield "| field | type | what it is |"
    yield "|---|---|---|"
    for name, field in SCHEMA.fields.items():
        yield f"| `{name}` | {field.type} | {field.meaning} |"


if __name__ == "__main__":
    print(render_markdown(), end="")
