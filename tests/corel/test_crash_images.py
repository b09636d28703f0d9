"""A crash in the middle of a write: which of its pages have reached the disk, whole or in part, is left to chance,
and what is there after a restart is all of the write or nothing of it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.corel.disk_images import PAGE_BYTES, Content, read, written

SECTOR_BYTES = 512


def pages(image: bytes) -> list[bytes]:
    return [image[start : start + PAGE_BYTES] for start in range(0, len(image), PAGE_BYTES)]


def torn(old: bytes, new: bytes, random: Random) -> bytes:
    """A page of which only some sectors have been written."""
    sectors = range(0, PAGE_BYTES, SECTOR_BYTES)
    return b"".join((new if random.random() < 0.5 else old)[at : at + SECTOR_BYTES] for at in sectors)


def crashed(before: bytes, after: bytes, random: Random, is_synced: bool) -> bytes:
    """What is on disk if the process and the machine die during a write. LMDB syncs the pages before it writes a
    meta page: if they are not synced, no meta page is written, and if they are, its sectors may be."""
    size = max(len(before), len(after))
    found = []
    for number, (old, new) in enumerate(
        zip(pages(before.ljust(size, b"\0")), pages(after.ljust(size, b"\0")), strict=True)
    ):
        if number < 2:
            found.append(torn(old, new, random) if is_synced else old)
        elif is_synced:
            found.append(new)
        else:
            found.append(random.choice((old, new, torn(old, new, random))))
    return b"".join(found)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_there_after_a_crash_is_all_of_the_last_write_or_nothing_of_it(tmp_path: Path, seed: int) -> None:
    random = Random(f"crash images {seed}")
    data = tmp_path / "node" / "data.mdb"
    last: tuple[bytes, Content] | None = None
    seen = {"before": 0, "after": 0}
    for count, content in enumerate(written(tmp_path / "node", 25, random)):
        image = data.read_bytes()
        if last is not None:
            for is_synced in (False, False, True, True):
                directory = tmp_path / f"crashed {count} {sum(seen.values())}"
                directory.mkdir()
                (directory / "data.mdb").write_bytes(crashed(last[0], image, random, is_synced))
                found = read(directory)
                assert found in (last[1], content)
                assert is_synced or found == last[1]
                seen["after" if found == content else "before"] += 1
        last = image, content
    assert min(seen.values()) > 10, seen
