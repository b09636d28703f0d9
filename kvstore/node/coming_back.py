"""How a node comes back after it has left: when it tries, and what an attempt consists of.

After a pause (`BackOff`), the node opens its log again if LMDB refuses every transaction, makes a trial write,
and starts its next incarnation. If one of these fails, it tries again after `RETRY_SECONDS`, which the others do
not notice. A node whose log is damaged does not come back: a trial write would succeed, and the node would leave
again when it meets the damage. A node that lacks what the others have truncated (`OutOfReach`) leaves in the
same way; its next incarnation stays in a view of its own, and learns. There is no clock, thread or event loop
here: `Surroundings` has them, real or simulated."""

from __future__ import annotations

import contextlib
from typing import Protocol

from corel import OutOfReach
from corel.disk_errors import DamagedLog, DiskError
from kvstore.node.back_off import BackOff
from kvstore.node.synced_numbers import SyncedNumberError
from transport.udp import UdpError

RETRY_SECONDS = 1.0
"""The pause between attempts to write to a disk that failed. The others do not notice them."""


class Switching(Exception):
    """The node goes on with what it has taken over from another in a moment."""

    def __init__(self) -> None:
        super().__init__(
            "The node begins again with the state that it has taken over from another. Ask again soon."
        )


class Surroundings(Protocol):
    """What a node that is away has at hand."""

    def now(self) -> float:
        """Returns the time in seconds."""

    async def sleep(self, seconds: float) -> None: ...

    async def writer_ended(self) -> None:
        """Returns when nothing is being written to the log."""

    def reopen_log(self) -> None:
        """Opens the log again if no transaction can begin. Raises `DiskError` if that fails."""

    async def try_write(self) -> None:
        """Raises `DiskError` if the disk does not take a write of realistic size."""

    def begin(self) -> None:
        """Starts the next incarnation, which reads the log."""

    def cannot_come_back(self, reason: str) -> None:
        """Says why an attempt has failed."""


class ComingBack:
    """The absences of one node, across its incarnations."""

    def __init__(self) -> None:
        self._back_off = BackOff()
        self.trouble: DiskError | OutOfReach | Switching | None = None
        """Why the node is away; None while it takes part."""

    def failed(self, error: DiskError | OutOfReach, now: float) -> float | None:
        """Notes why the node leaves; returns how many seconds it stays away at least, or None if it does not come
        back."""
        self.trouble = error
        return None if isinstance(error, DamagedLog) else self._back_off.failed(now)

    async def come_back(self, node: Surroundings, pause: float) -> None:
        """Returns when the next incarnation has started, after this many seconds or later. Raises `DamagedLog` if
        none can."""
        await node.writer_ended()
        with contextlib.suppress(DiskError):  # reads go on meanwhile, if they can; the first attempt says why not
            node.reopen_log()
        await node.sleep(pause)
        while True:
            try:
                node.reopen_log()
                await node.try_write()
                node.begin()
            except DamagedLog as error:
                self.trouble = error
                raise
            except (DiskError, UdpError, SyncedNumberError, OSError) as error:
                node.cannot_come_back(str(error))
                await node.writer_ended()
                with contextlib.suppress(DiskError):  # the next attempt meets it again, and says so
                    node.reopen_log()
                await node.sleep(RETRY_SECONDS)
            else:
                self._back_off.returned(node.now())
                self.trouble = None
                return
