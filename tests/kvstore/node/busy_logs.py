"""Logs whose node goes on while they are read: it writes in a process of its own, as a node does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_TRUNCATE = """
import sys
from pathlib import Path
from kvstore.node.lmdb_tree import LmdbTree
from tests.kvstore.node.made_logs import MadeLog, body_of
log = MadeLog(Path(sys.argv[1]))
log._tree = LmdbTree(log._log, 1)  # which forgets what became of all messages but the last
log.truncate(int(sys.argv[2]))
log.add([body_of(1)])
log.turn_green(1)
log.close()
"""


def truncate_apart(directory: Path, cut: int) -> None:
    """Truncates a log of `made_logs` that this process may be reading, up to this line, with the fates of what is
    deleted; one more message becomes green."""
    subprocess.run([sys.executable, "-c", _TRUNCATE, str(directory), str(cut)], check=True)
