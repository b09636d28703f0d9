"""One-line bugs in what a node does with its disk, and the directed tests that notice them."""

from __future__ import annotations

from corel import checked_values
from corel.lmdb_log import LmdbLog
from corel.lmdb_reading import LmdbReader, Reading
from corel.lmdb_truncation import Truncation
from kvstore.node import lmdb_history
from kvstore.node.coming_back import ComingBack
from kvstore.node.fate_ages import FateAges
from kvstore.node.lmdb_history import LmdbHistory
from kvstore.node.lmdb_tree import LmdbTree
from kvstore.node.synced_numbers import ClockFloor
from tests.corel import test_lmdb_log, test_rot, test_truncation
from tests.kvstore.node import test_clock_floor, test_coming_back, test_fate_ages
from tests.kvstore.store import test_past_on_disk
from tests.simulator.mutation import Edit, Mutant

SEEDS_MAX = 0

MUTANTS = [
    Mutant(
        "a node comes back to a damaged log",
        (),
        (Edit(ComingBack, "failed", "None if isinstance(error, DamagedLog) else ", ""),),
        test=test_coming_back.test_a_node_does_not_come_back_to_a_damaged_log,
    ),
    Mutant(
        "the first block of the clock is as large as the last",
        (),
        (Edit(ClockFloor, "__init__", "self._block = CLOCK_BLOCK_FIRST", "self._block = CLOCK_BLOCK_MAX"),),
        test=test_clock_floor.test_the_starts_of_a_crash_loop_stay_within_what_peers_accept,
    ),
    Mutant(
        "the blocks of the clock stay small under load",
        (),
        (Edit(ClockFloor, "raise_above", "min(2 * self._block, CLOCK_BLOCK_MAX)", "self._block"),),
        test=test_clock_floor.test_syncs_become_rare_under_load,
    ),
    Mutant(
        "a clock that the disk has refused counts as reserved",
        (),
        (
            Edit(
                ClockFloor,
                "raise_above",
                "write_number(self._path, clock + self._block)",
                "self._reserved = clock + self._block; write_number(self._path, self._reserved)",
            ),
        ),
        test=test_clock_floor.test_what_the_disk_refused_is_not_reserved,
    ),
    Mutant(
        "all bodies that are not green are in memory at the start",
        (),
        (Edit(LmdbReader, "_entries", "record.entry_without_body()", "record.entry()"),),
        test=test_lmdb_log.test_bodies_of_what_is_not_green_are_read_when_they_are_needed_not_at_the_start,
    ),
    Mutant(
        "a batch is deleted when one of its messages is truncated",
        (),
        (Edit(Truncation, "_delete_batches", "truncated < end - start", "truncated < 1"),),
        test=test_truncation.test_a_batch_is_kept_until_its_last_message_is_truncated,
    ),
    Mutant(
        "what was truncated of a batch before is not counted",
        (),
        (Edit(Truncation, "_count", "self._truncated(start) + following - place", "following - place"),),
        test=test_truncation.test_a_batch_is_kept_until_its_last_message_is_truncated,
    ),
    Mutant(
        "a batch is deleted that a start looks for",
        (),
        (Edit(Truncation, "_delete_batches", " or end > lines.open_from", ""),),
        test=test_truncation.test_what_a_start_looks_for_is_not_deleted,
    ),
    Mutant(
        "the digest of the order is not kept where it is cut",
        (),
        (
            Edit(
                Truncation,
                "_shorten_order",
                "line, digest = start + len(arrivals), record_digest",
                "line = start + len(arrivals)",
            ),
        ),
        test=test_truncation.test_what_is_before_the_cut_is_deleted_with_a_checkpoint,
    ),
    Mutant(
        "a part of the order beyond the cut is deleted too",
        (),
        (Edit(Truncation, "_shorten_order", "if start + len(arrivals) > cut:", "if start > cut:"),),
        test=test_truncation.test_what_is_before_the_cut_is_deleted_with_a_checkpoint,
    ),
    Mutant(
        "a fate is deleted while its message is in the log",
        (),
        (
            Edit(
                FateAges,
                "forget",
                "min(line - self._kept, self._log.beginning(transaction).line)",
                "line - self._kept",
            ),
        ),
        test=test_fate_ages.test_what_is_in_the_log_has_its_fate,
    ),
    Mutant(
        "a fate outlives its age",
        (),
        (Edit(FateAges, "forget", "transaction.delete(bytes(name), db=self._fates)", "pass"),),
        test=test_fate_ages.test_the_fates_of_the_last_messages_are_kept_and_older_ones_are_not,
    ),
    Mutant(
        "a log that LMDB refuses to use is not opened again",
        (),
        (Edit(LmdbLog, "reopen_if_unusable", "if self._is_usable():", "if True:"),),
        test=test_lmdb_log.test_a_log_whose_meta_page_could_not_be_written_is_opened_again_and_has_everything,
    ),
    Mutant(
        "a log that is opened again keeps the tables of before",
        (),
        (Edit(LmdbLog, "reopen_if_unusable", "self._open_tables()", "pass"),),
        test=test_lmdb_log.test_a_log_whose_meta_page_could_not_be_written_is_opened_again_and_has_everything,
    ),
    Mutant(
        "checksums do not cover where a value belongs",
        (),
        (
            Edit(checked_values, "checked", "crc32(place)", "0"),
            Edit(checked_values, "verified", "crc32(place)", "0"),
        ),
        test=test_rot.test_a_value_in_the_place_of_another_is_damage,
    ),
    Mutant(
        "what LMDB finds wrong with a page is not explained",
        (),
        (Edit(Reading, "__exit__", "if isinstance(error, lmdb.Error)", "if False"),),
        test=test_rot.test_what_lmdb_finds_wrong_with_a_page_is_explained,
    ),
    Mutant(
        "a log without an identity is begun anew, whatever is in it",
        (),
        (Edit(LmdbLog, "_identify", "if is_new and is_empty:", "if is_new:"),),
        test=test_rot.test_a_log_whose_identity_is_hidden_is_damaged_and_not_begun_anew,
    ),
    Mutant(
        "messages that are not there are not missed",
        (),
        (Edit(LmdbReader, "load", "if [entry.arrival for entry in logged] !=", "if [] and []!="),),
        test=test_rot.test_messages_that_are_missing_are_noticed_at_the_start,
    ),
    Mutant(
        "a gap in the order is not missed",
        (),
        (Edit(LmdbReader, "_green_arrivals", "if end not in (None, start):", "if False:"),),
        test=test_rot.test_a_gap_in_the_order_is_noticed,
    ),
    # The past on disk
    Mutant(
        "a change replaced what was on disk, and not what the change before it put",
        (),
        (
            Edit(
                LmdbHistory,
                "_append",
                "records[key] if key in records else items.get(name)",
                "items.get(name)",
            ),
        ),
        test=test_past_on_disk.test_a_key_that_changes_often_in_one_checkpoint_has_all_its_values,
    ),
    Mutant(
        "what a key held at a revision is what that revision replaced",
        (),
        (Edit(lmdb_history._Reader, "item", "_key(self._revision + 1)", "_key(self._revision)"),),
        test=test_past_on_disk.test_a_key_that_changes_often_in_one_checkpoint_has_all_its_values,
    ),
    Mutant(
        "keys that are gone are not listed where they were",
        (),
        (Edit(LmdbHistory, "_walk_past", "name > current if is_reverse else name < current", "name < current"),),
        test=test_past_on_disk.test_keys_that_are_gone_and_keys_that_are_new_are_listed_where_they_were,
    ),
    Mutant(
        "changes are read one revision too late",
        (),
        (Edit(LmdbHistory, "changes", "if revision < first or", "if revision <= first or"),),
        test=test_past_on_disk.test_changes_are_read_from_the_middle_of_a_message_on,
    ),
    Mutant(
        "a message that is forgotten is forgotten up to its first revision",
        (),
        (
            Edit(
                LmdbHistory,
                "write",
                "forgotten = max(forgotten, through)",
                "forgotten = max(forgotten, first)",
            ),
        ),
        test=test_past_on_disk.test_a_message_is_forgotten_as_a_whole_oldest_first,
    ),
    Mutant(
        "a message is forgotten when its first revision may be",
        (),
        (
            Edit(
                LmdbHistory,
                "write",
                "if through > checkpoint.forget_through and",
                "if first > checkpoint.forget_through and",
            ),
        ),
        test=test_past_on_disk.test_a_message_is_forgotten_as_a_whole_oldest_first,
    ),
    Mutant(
        "with one version of a key all are forgotten",
        (),
        (
            Edit(
                LmdbHistory,
                "_delete",
                "transaction.delete(key.encode(), _key(revision),",
                "transaction.delete(key.encode(),",
            ),
        ),
        test=test_past_on_disk.test_the_index_keeps_what_is_kept,
    ),
    Mutant(
        "the past may be as large as it likes",
        (),
        (Edit(LmdbHistory, "write", " and size <= checkpoint.history_bytes_max", ""),),
        test=test_past_on_disk.test_a_large_past_is_forgotten_sooner,
    ),
    Mutant(
        "versions are shown that are forgotten and not deleted yet",
        (),
        (Edit(LmdbHistory, "versions", "> forgotten:", ">= 0:"),),
        test=test_past_on_disk.test_versions_that_are_forgotten_and_not_deleted_yet_are_not_shown,
    ),
    Mutant(
        "conflicts of the newest revision are forgotten too",
        (),
        (Edit(LmdbHistory, "_write_conflicts", "> forgotten:", "> forgotten + 2:"),),
        test=test_past_on_disk.test_conflicts_leave_the_disk_with_their_revisions_and_not_before,
    ),
    Mutant(
        "a deletion is forgotten with an earlier one of the same key",
        (),
        (
            Edit(
                LmdbTree,
                "_forget",
                "if value is not None and self._position(kind, key, value) == position:",
                "if True:",
            ),
        ),
        test=test_past_on_disk.test_a_deletion_that_was_repeated_is_remembered_by_the_last,
    ),
    Mutant(
        "deletions stay on disk for ever",
        (),
        (
            Edit(
                LmdbTree, "_forget", "self._memories if kind == _OF_MEMORY else self._tombstones", "self._memories"
            ),
        ),
        test=test_past_on_disk.test_a_deletion_that_was_repeated_is_remembered_by_the_last,
    ),
]


def broken_property(seed: int, nodes: tuple[int, int]) -> str | None:
    raise NotImplementedError("a node has no simulation of its own")
