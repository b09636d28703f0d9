"""The journals of real nodes: the whole life of every message, and disks that fail under them."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.api.cluster import Answer, Cluster, Node, eventually
from tests.journals import JournalRead, Record, faults_of, read_journal
from tests.small_disks import mounted


class Story:
    """A run with a partition and a merge: what clients were answered, what nodes showed, what journals say."""

    def __init__(self, directory: Path) -> None:
        self.answers: dict[str, list[Any]] = defaultdict(list)
        """What clients were told, by node."""
        with Cluster("abc", directory, ("--journal",)) as cluster:
            cluster.start()
            self._tell(cluster)
            cluster.await_agreement()
            self.log = cluster["b"].get_path("/v1/log?from=0&limit=1000").json["entries"]
            self.conflicts = cluster["b"].get_path("/v1/conflicts").json["items"]
            for node in cluster:
                assert node.stop() == 0
            self.journals = {node.name: read_journal(node.data / "journal") for node in cluster}

    def _tell(self, cluster: Cluster) -> None:
        a, c = cluster["a"], cluster["c"]
        for number in range(10):
            self._note(a, a.put(f"k{number}", "first"))
        self._note(a, a.put("k0", "never", If_Match='"999"'))
        batch = {"then": [{"put": {"key": f"t{number}", "value": "x"}} for number in range(5)]}
        self._note(c, c.txn(batch))
        cluster.partition("ab|c")
        for number in range(5):
            self._note(c, c.put(f"k{number}", "red"))
            self._note(a, a.put(f"k{number}", "green"))
        self._note(c, c.put("once", "x", If_None_Match="*"))
        self._note(a, a.put("once", "x", If_None_Match="*"))
        cluster["b"].kill()
        cluster["b"].start()
        cluster["b"].await_ready("")
        cluster.heal()
        self._note(c, c.delete("k9"))

    def _note(self, node: Node, answer: Answer) -> None:
        assert answer.status in (200, 202, 412), answer.body
        self.answers[node.name].append(answer.json)

    def of(self, name: str, *events: str) -> list[Record]:
        return self.journals[name].of(*events)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return Story(tmp_path_factory.mktemp("journals"))


def times_of(journal: JournalRead, *events: str) -> dict[str, list[float]]:
    """When each message was named in such records."""
    times: dict[str, list[float]] = defaultdict(list)
    for record in journal.of(*events):
        for message in record["ids"]:
            times[message].append(record["monotonic_ms"])
    return times


def placed(journal: JournalRead, event: str) -> dict[int, str]:
    """Which message has which position, from all incarnations; they must agree."""
    found: dict[int, str] = {}
    for record in journal.of(event):
        for position, message in enumerate(record["ids"], record["position"]):
            assert found.setdefault(position, message) == message
    return found


def test_every_record_is_as_the_schema_says(story: Story) -> None:
    for journal in story.journals.values():
        assert [fault for record in journal.records for fault in faults_of(record)] == []
        assert journal.torn == 0
        assert journal.of("gap") == []


def test_every_message_of_the_log_is_told_from_its_sending_to_its_place(story: Story) -> None:
    for name in "ac":  # b was killed, and may have lost the last 100 ms before that
        journal = story.journals[name]
        arrived = times_of(journal, "sent", "received", "recovered")
        logged, green = times_of(journal, "logged"), times_of(journal, "green")
        applied = times_of(journal, "applied")
        assert placed(journal, "green") == {entry["position"]: entry["id"] for entry in story.log}
        for entry in story.log:
            life = [times[entry["id"]] for times in (arrived, logged, green, applied)]
            assert list(map(len, life)) == [1, 1, 1, 1], (name, entry)
            if entry["id"] in times_of(journal, "recovered"):
                life.pop(1)  # it may be green elsewhere already, and is then green here before it is on this disk
            assert life == sorted(life)
            sender = entry["id"].split(".")[0]
            assert (entry["id"] in times_of(journal, "sent")) == (sender == name)
            if sender in "ac":  # all are on one machine, and have one monotonic clock
                assert times_of(story.journals[sender], "sent")[entry["id"]] <= arrived[entry["id"]]


def test_timestamps_sizes_and_revisions_are_those_of_the_log(story: Story) -> None:
    clocks: dict[str, set[int]] = defaultdict(set)
    revisions: dict[str, set[int]] = defaultdict(set)
    for journal in story.journals.values():
        for record in journal.of("sent", "received", "recovered"):
            assert len(record["ids"]) == len(record["clocks"]) == len(record["sizes"])
            for message, clock in zip(record["ids"], record["clocks"], strict=True):
                clocks[message].add(clock)
        for record in journal.of("applied"):
            for message, revision in zip(record["ids"], record["revisions"], strict=True):
                revisions[message].add(revision)
    for entry in story.log:
        assert clocks[entry["id"]] == {entry["timestamp"]}
        assert len(revisions[entry["id"]]) == 1


def test_messages_are_yellow_before_they_are_green(story: Story) -> None:
    journal = story.journals["a"]
    yellow = times_of(journal, "yellow")
    for record in journal.of("logged"):
        if record["color"] == "yellow":
            for message in record["ids"]:
                yellow[message].append(record["monotonic_ms"])
    for message, (at,) in times_of(journal, "green").items():
        assert min(yellow[message]) <= at


def test_what_clients_were_told_is_what_the_journal_says_they_were(story: Story) -> None:
    for name, answers in story.answers.items():
        told = {write: rest for record in story.of(name, "acknowledged") for write, *rest in expanded(record)}
        asked = {one["id"]: [one["color"], one["outcome"], one.get("revision")] for one in answers}
        assert {write: told[write] for write in asked} == asked
    outcomes = {one["outcome"] for answers in story.answers.values() for one in answers}
    assert outcomes == {"applied", "rejected", "pending"}


def expanded(record: Record) -> Iterator[tuple[Any, ...]]:
    runs = zip(*[record[name] for name in ("firsts", "counts", "outcomes", "revisions")], strict=True)
    for first, count, outcome, revision in runs:
        step = 1 if outcome == "applied" and revision is not None else 0
        for number in range(count):
            told = None if revision is None else revision + step * number
            yield f"{record['id']}.{first + number}", record["color"], outcome, told


def test_what_the_merge_changed_is_told_by_every_node(story: Story) -> None:
    expected = sorted((one["write"], one["kind"], one["key"], one["other"]["write"]) for one in story.conflicts)
    assert len(expected) == 6
    for name in "ac":
        changed = story.of(name, "outcome_changed")
        assert sorted((one["write"], one["kind"], one["key"], one["other"]) for one in changed) == expected
        [rejected] = [one for one in changed if one["kind"] == "rejected"]
        assert (rejected["outcome"], rejected["revision"], rejected["key"]) == ("rejected", None, "once")


def test_the_group_s_life_is_told_too(story: Story) -> None:
    for name in "abc":
        views = [[one.split(".")[0] for one in record["members"]] for record in story.of(name, "view")]
        assert views[0] == [name]
        assert list("abc") in views
        number = 0
        for record in story.of(name, "attempted", "committed", "established", "aborted"):
            assert record["number"] >= number
            number = record["number"]
    established: dict[int, list[str]] = {}
    for record in (record for name in "abc" for record in story.of(name, "established")):
        assert established.setdefault(record["number"], record["members"]) == record["members"]
    for before, after in pairwise(established[number] for number in sorted(established)):
        assert {one.split(".")[0] for one in before} & {one.split(".")[0] for one in after}
    assert [record["stage"] for record in story.of("c", "stage")].count("non_primary") >= 1
    assert any(record["machines"] for record in story.of("a", "suspected"))
    assert story.of("c", "copies_sent")
    assert [len(story.of(name, "started")) for name in "abc"] == [1, 2, 1]
    assert [record["reason"] for record in story.of("b", "stopped")] == ["closed"]
    incarnations = [record["incarnation"] for record in story.of("b", "started")]
    assert incarnations == sorted(set(incarnations))


# Crashes

_WRITES_WITHOUT_END = """
import sys, time
from pathlib import Path
from kvstore.node import journal, journal_records
from tests.journals import journal_in
from transport import Machine
journal.WRITE_PAUSE_S = 0.001
writer = journal_in(Path(sys.argv[1]), bytes_max=2**28, file_bytes_max=2**16)
writer.begin(Machine("a", int(sys.argv[2])))
print("ready", flush=True)
number = 0
while True:
    time.sleep(0.0005)
    while writer._put_weight - writer._taken_weight < 1_000:
        writer.put(journal_records.plain, "stopped", {"reason": str(number), "detail": "x" * 300})
        number += 1
"""


def test_kills_at_random_points_leave_readable_files_without_gaps(tmp_path: Path) -> None:
    drawn = random.Random(1)
    for incarnation in range(1, 21):
        command = [sys.executable, "-c", _WRITES_WITHOUT_END, str(tmp_path / "journal"), str(incarnation)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == b"ready\n"
                time.sleep(drawn.uniform(0.0, 0.2))  # a random point of its writing, not something to wait for
            finally:
                process.kill()
        found = read_journal(tmp_path / "journal")
        assert found.torn <= incarnation
        numbers = [int(record["reason"]) for record in found.records if record["incarnation"] == incarnation]
        assert numbers == list(range(len(numbers)))
    assert len({record["incarnation"] for record in found.records}) > 10


# Disks


def test_a_full_disk_costs_journal_records_and_no_writes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with (
        mounted(tmp_path / "a" / "journal", megabytes=1) as small,
        Cluster("a", tmp_path, ("--journal",)) as cluster,
    ):
        (small / "ballast").write_bytes(b"x" * (1_048_576 - 8_192))
        node = cluster.start()["a"]
        written = 0
        while not node.status()["warnings"]:
            assert node.put("k", "x").status == 200
            written += 1
            assert written < 2_000
        assert "journal" in node.status()["warnings"][0]
        (small / "ballast").unlink()
        assert node.put("k", "last").status == 200
        eventually(lambda: bool(read_journal(small).of("gap")), lambda: node.output)
        assert node.stop() == 0
        found = read_journal(small)
    assert found.torn == 0
    assert [fault for record in found.records for fault in faults_of(record)] == []
    assert found.of("gap")[0]["count"] > 0


_STUCK_JOURNAL = """
import time
from kvstore.node.journal_files import JournalFiles
JournalFiles.append = lambda self, data, now: time.sleep(3_600)
"""


def test_a_stuck_disk_of_the_journal_holds_up_neither_writes_nor_the_stop(tmp_path: Path) -> None:
    with Cluster("a", tmp_path, ("--journal",), _STUCK_JOURNAL) as cluster:
        node = cluster.start()["a"]
        assert all(node.put("k", "x").status == 200 for _ in range(20))
        begun = time.monotonic()
        assert node.stop() == 0
        assert time.monotonic() - begun < 15.0
