"""Stories that once ended badly: `docs/bugs.md`, "The log"."""

from __future__ import annotations

from copy import deepcopy

import pytest

from corel.config import CorelConfig
from corel.effects import Logged
from corel.messages import MessageId
from corel.outbox import TooLarge
from corel.recovery_plan import Contradiction
from corel.stages import Stage
from corel.storage import Lines, Record, Yellow, restore
from tests.corel.harness import LogCluster
from transport.messages import Machine, ViewId


def reported(cluster: LogCluster, name: str) -> list[MessageId]:
    """Returns the messages that the node has reported as being on its disk."""
    logged = [effect for effect in cluster.effects[name] if isinstance(effect, Logged)]
    return [entry.id for effect in logged for entry in effect.entries]


def test_a_message_logged_across_a_view_change_is_reported() -> None:
    cluster = LogCluster("abcde")
    cluster.settle("ab", "cde")
    cluster.disk("a").hold()
    [message_id] = cluster.submit("a", "x")
    cluster.run()
    assert message_id not in reported(cluster, "a")
    cluster.views("ab", "cde")
    cluster.disk("a").release()
    cluster.run()
    assert cluster["a"].stage is Stage.NON_PRIMARY
    assert message_id in reported(cluster, "a")


def test_a_body_that_could_not_be_retransmitted_is_refused_and_uses_up_nothing() -> None:
    cluster = LogCluster("ab", config=CorelConfig(body_bytes_max=100, write_gather_ms=0.0))
    cluster.settle("ab")
    with pytest.raises(TooLarge, match="101 bytes; at most 100"):
        cluster["a"].submit(bytes(101))
    assert cluster["a"].submit(bytes(100)) == MessageId(cluster["a"].me, 1)


def test_messages_of_folded_streams_are_green_wherever_the_log_is_read_from() -> None:
    gone, view = Machine("a", 1), ViewId(1, "a", 1)
    record = Record(0, MessageId(gone, 1), 5, view, 0, b"x")
    image = restore(Lines(green=1, next_arrival=1, folded=(("a", 1),)), Yellow(), [record.entry()])
    assert len(image.queue) == image.queue.green == 1


def test_a_node_that_catches_up_again_and_again_with_folded_streams_is_not_waited_for() -> None:
    cluster = LogCluster("abc", config=CorelConfig(batch_bytes_max=1, batches_ahead_max=1, write_gather_ms=0.0))
    cluster.settle("abc")
    cluster.submit("a", "x y")
    cluster.run()
    for _ in range(2):  # so that a's first incarnation is green everywhere, on disk, and folded away
        cluster.restart("a")
        cluster.settle("abc")
    assert cluster["b"].queue.is_folded(Machine("a", 1))
    cluster.crash("c")
    cluster.replace_disk("c")
    cluster.start("c")
    cluster.views("abc")
    cluster.run_until(lambda: cluster["c"].queue.red)
    cluster.settle("ab", "c")
    cluster.settle("abc")
    assert cluster.stages() == {Stage.PRIMARY}
    assert cluster.pictures() == {"x y||"}


def test_a_disk_brought_back_as_it_was_stops_its_own_node_and_nobody_else() -> None:
    cluster = LogCluster("abc")
    cluster.settle("abc")
    cluster.submit("a", "x")
    cluster.run()
    before = deepcopy(cluster.disk("c").log)
    cluster.submit("a", "y z")
    cluster.run()
    cluster.crash("c")
    cluster.checkers.clear()  # which would object to the copy itself
    cluster.disk("c").log = before
    cluster.start("c")
    cluster.views("abc")
    with pytest.raises(Contradiction, match=r"a yellow line is below .*: c\.2 against a\.1, b\.1"):
        cluster.run()
    cluster.crash("c")
    cluster.run()
    assert cluster["a"].phase == "waiting for a contradicting node to leave"
    cluster.submit("a", "kept")
    cluster.settle("ab")
    assert cluster.stages("ab") == {Stage.PRIMARY}
    assert cluster.pictures("ab") == {"x y z kept||"}


def test_who_lacks_nothing_writes_nothing_while_another_catches_up() -> None:
    cluster = LogCluster("abc", config=CorelConfig(batch_bytes_max=1, batches_ahead_max=1, write_gather_ms=0.0))
    cluster.settle("abc")
    cluster.submit("a", "x y z")
    cluster.run()
    cluster.crash("c")
    cluster.replace_disk("c")
    cluster.start("c")
    cluster.views("abc")
    cluster.run_until(lambda: cluster["c"].queue.red)
    cluster.disk("a").hold()
    cluster.disk("b").hold()
    cluster.run_until(lambda: cluster["c"].stage is Stage.ESTABLISHING)
    cluster.disk("a").release()
    cluster.disk("b").release()
    cluster.run()
    cluster.check_finished()
    assert cluster.pictures() == {"x y z||"}
