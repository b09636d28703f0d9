"""`corelkv backup`: a consistent copy of a cluster's state, read from one node while writes go on."""

from __future__ import annotations

import contextlib
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvstore.cli.backup_file import BackupFailed, BackupWriter, written
from kvstore.cli.output import Exit, fail, print_json
from kvstore.cli.progress import progress as shown
from kvstore.client import ANSWER_SECONDS, Client, CorelError, Reply, Request, RetryPolicy
from kvstore.node import DamagedSnapshot, Kind, SnapshotProgress

PART_SECONDS = ANSWER_SECONDS * 4
"""How long a node may take for one part: it reads it between everything else that it does."""


def backup(url: str, path: Path, is_json: bool) -> int:
    """Writes the file, prints what is in it, and returns the exit status."""
    try:
        # At the end, the file is renamed or removed before the snapshot is closed: the node may not answer then.
        with _client_of(url) as client, _opened(client) as snapshot, written(path) as writer:
            progress = _copy(client, snapshot, writer)
    except (BackupFailed, DamagedSnapshot) as error:
        return fail(error, Exit.FAILED)
    header = progress.header
    figures = {
        "file": str(path),
        "bytes": writer.bytes,
        "cluster": header.cluster,
        "node": header.node,
        "green": header.lines.green,
        "records": progress.records,
        "messages": header.lines.green - header.line,
        "created_ms": header.created_ms,
    }
    if is_json:
        print_json(figures)
    else:
        print(
            f"{path}: the first {header.lines.green:,} messages of cluster {header.cluster}, as node "
            f"{header.node} had them ({progress.records:,} records, {writer.bytes:,} bytes)"
        )
    return Exit.OK


def _client_of(url: str) -> Client:
    """Returns a client of this node alone: the parts of a snapshot are where it is open."""
    return Client([url], discover=False, retry=RetryPolicy(attempts_max=1))


@contextlib.contextmanager
def _opened(client: Client) -> Iterator[Any]:
    """Opens a snapshot, and closes it whatever happens."""
    snapshot = _checked(client.send(Request("POST", "/v1/snapshots", answer_seconds=PART_SECONDS))).fields()
    try:
        yield snapshot
    finally:
        with contextlib.suppress(CorelError):  # the node closes it by itself after a while
            client.send(Request("DELETE", f"/v1/snapshots/{snapshot['id']}"))


def _copy(client: Client, snapshot: Any, writer: BackupWriter) -> SnapshotProgress:
    """Copies a snapshot part by part."""
    header, path = b64decode(snapshot["header"]), f"/v1/snapshots/{snapshot['id']}"
    progress = SnapshotProgress.begun(header)
    writer.add(Kind.HEADER, header)
    with shown("records", progress.header.records) as advance:
        while (table := progress.position.table) is not None:
            after = urlsafe_b64encode(progress.position.after).decode().rstrip("=")
            content = _part(client, f"{path}/{table}", after=after)
            progress, _ = progress.with_chunk(content)
            writer.add(Kind.CHUNK, content)
            advance(progress.records)
    while not progress.is_whole:
        content = _part(client, f"{path}/tail", **{"from": str(progress.position.line)})
        progress, records = progress.with_batch(content)
        if not records:
            raise BackupFailed("the node has no more messages, although its snapshot says so. Do it again.")
        writer.add(Kind.BATCH, content)
    return progress


def _part(client: Client, path: str, **query: str) -> bytes:
    return _checked(client.send(Request("GET", path, query, answer_seconds=PART_SECONDS))).body


def _checked(reply: Reply) -> Reply:
    if not reply.is_success:
        raise BackupFailed(reply.message)
    return reply
