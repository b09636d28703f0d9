"""The supervisor's control channel: a Unix socket through which the nodes of a dev cluster pass on requests of the
console's laboratory to kill and start nodes (decision 25).

A request is one line of JSON, `{"node": "c", "action": "kill"}`, and so is the answer, `{"running": false}` or
`{"error": code, "message": sentence}`. Whoever may open the socket, a file in a directory of the user's own, may
kill these processes anyway."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

from kvstore.cli.supervisor import Supervisor

REQUEST_BYTES_MAX = 1_024
REQUEST_SECONDS = 5.0
KILL_DELAY_SECONDS = 0.1
"""Between the answer and the kill: the node to be killed may be the one that has to pass on the answer."""


class ControlServer:
    """Answers requests while it is entered as an asynchronous context manager."""

    def __init__(self, supervisor: Supervisor, path: Path) -> None:
        self._supervisor = supervisor
        self._path = path

    async def __aenter__(self) -> ControlServer:
        self._server = await asyncio.start_unix_server(self._serve, self._path, limit=REQUEST_BYTES_MAX)
        return self

    async def __aexit__(self, *problem: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(TimeoutError, ConnectionError, ValueError):  # of a client
            async with asyncio.timeout(REQUEST_SECONDS):
                answer = self._answer(await reader.readline())
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        writer.close()

    def _answer(self, line: bytes) -> dict[str, object]:
        request = json.loads(line)
        match request:
            case {"node": str(name), "action": "kill" | "start" as action}:
                pass
            case _:
                return {"error": "invalid_request", "message": "A request has a node and an action."}
        try:
            if action == "start":
                self._supervisor.start(name)
            else:
                self._supervisor.check(name)
                asyncio.get_running_loop().call_later(KILL_DELAY_SECONDS, self._kill, name)
        except LookupError as error:
            return {"error": "not_watched", "message": f"{error.args[0]}."}
        return {"running": action == "start"}

    def _kill(self, name: str) -> None:
        with contextlib.suppress(LookupError):  # it was given up meanwhile
            self._supervisor.kill(name)
