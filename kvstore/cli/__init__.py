"""The `corelkv` command, which runs nodes and is a client of their API."""

from kvstore.cli.main import main

__all__ = ["main"]
