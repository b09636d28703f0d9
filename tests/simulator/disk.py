"""A simulated disk: what is written is certain to survive a crash only once it has been synced.

At a crash each unsynced write is lost, kept, or torn (a prefix of it is kept), as the random numbers decide.
"""

from __future__ import annotations

from random import Random


class Disk:
    """Named files with whole-file writes, which is all the protocol's small records need."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._synced: dict[str, bytes] = {}
        self._unsynced: dict[str, bytes] = {}

    def write(self, name: str, content: bytes) -> None:
        self._unsynced[name] = content

    def read(self, name: str) -> bytes | None:
        """Returns what the running process sees: its own writes, synced or not."""
        return self._unsynced.get(name, self._synced.get(name))

    def sync(self) -> None:
        self._synced.update(self._unsynced)
        self._unsynced.clear()

    def crash(self) -> None:
        for name, content in self._unsynced.items():
            fate = self._random.choice(("lost", "kept", "torn"))
            if fate == "kept":
                self._synced[name] = content
            elif fate == "torn":
                self._synced[name] = content[: self._random.randrange(len(content) + 1)]
        self._unsynced.clear()
