"""The `corelkv` command, which runs nodes and is a client of their API."""

import sys

# httpx has a command of its own. For that it imports rich, click and Pygments wherever they are installed, which
# takes a fifth of the time in which `corelkv put` starts. Without the module it does without the command.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]

from kvstore.cli.main import main  # noqa: E402

__all__ = ["main"]
