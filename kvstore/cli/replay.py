"""`corelkv replay`: performs a script of the console's laboratory again, with its timing."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from kvstore.cli.commands import client_of
from kvstore.cli.output import Exit, UsageError, fail
from kvstore.cli.script import Action, Disturb, Heal, Kill, Partition, Script, Start, Workload, parse_script
from kvstore.client import AsyncClient, ClientError, Reply, Request, RetryPolicy, Unreachable, key_path

IN_FLIGHT_MAX = 32
"""Most writes of a workload that wait for a node's answer; those that are due meanwhile are left out."""
KEYS = 100
"""A workload writes to so many keys in turn, as the console's does."""
_JSON = {"Content-Type": "application/json"}
_ONCE = RetryPolicy(attempts_max=1)


def replay(options: argparse.Namespace) -> int:
    script = read_script(options.file)
    with client_of(options) as client:
        reply = client.send(Request("GET", "/v1/cluster"))
    if not reply.is_success:
        raise ClientError(reply.message)
    urls = {node["name"]: node["url"] for node in reply.json()["nodes"]}
    if missing := [name for name in script.nodes if not urls.get(name)]:
        raise UsageError(f"the script is about node {missing[0]}, whose URL this cluster does not know")
    if len(script.nodes) != len(urls):
        raise UsageError(f"the script is for {len(script.nodes)} nodes, and this cluster has {len(urls)}")
    return asyncio.run(_perform(script, urls, options.speed))


def read_script(path: Path) -> Script:
    try:
        return parse_script(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None


async def _perform(script: Script, urls: Mapping[str, str], speed: float) -> Exit:
    print(f"{len(script.steps)} steps, {script.ends_at_ms / 1_000.0 / speed:.1f} s")
    async with AsyncExitStack() as stack:
        clients = {
            name: await stack.enter_async_context(AsyncClient(url, discover=False, retry=_ONCE))
            for name, url in urls.items()
        }
        return await _Performance(script, clients, speed).run()


def _change_of_chaos(**settings: object) -> Request:
    """Changes these settings only: a cut does not end losses, nor the other way round."""
    return Request("PATCH", "/v1/chaos", {}, _JSON, json.dumps(settings).encode())


class _Performance:
    """One run of a script."""

    def __init__(self, script: Script, clients: Mapping[str, AsyncClient], speed: float) -> None:
        self._script = script
        self._clients = clients
        self._speed = speed
        self._failures = 0
        self._answers: Counter[str] = Counter()

    async def run(self) -> Exit:
        self._began = time.monotonic()
        workloads = []
        for number, step in enumerate(self._script.steps, start=1):
            await self._until(step.at_ms)
            self._say(f"{number}/{len(self._script.steps)}  {step.action}")
            if isinstance(step.action, Workload):
                workloads.append(asyncio.create_task(self._write(step.action)))
            else:
                self._report(await asyncio.gather(*self._requests(step.action)))
        await asyncio.gather(*workloads)
        if workloads:
            self._say("writes: " + ", ".join(f"{count} {what}" for what, count in sorted(self._answers.items())))
        self._say("done" if not self._failures else f"done; {self._failures} requests failed")
        return Exit.FAILED if self._failures else Exit.OK

    async def _until(self, at_ms: float) -> None:
        await asyncio.sleep(self._began + at_ms / 1_000.0 / self._speed - time.monotonic())

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:8.1f} s  {text}", flush=True)

    def _requests(self, action: Action) -> list[asyncio.Task[tuple[str, Reply | Unreachable]]]:
        if isinstance(action, Partition):
            requests = {}
            for island in action.islands:
                others = [name for name in self._clients if name not in island]
                change = _change_of_chaos(drop_from=others, drop_to=others)
                requests.update(dict.fromkeys(island, change))
        elif isinstance(action, Disturb):
            change = _change_of_chaos(loss=action.loss, delay_ms=action.delay_ms)
            requests = dict.fromkeys(action.nodes, change)
        elif isinstance(action, Heal):
            requests = {name: Request("DELETE", "/v1/chaos") for name in self._clients}
        elif isinstance(action, (Kill, Start)):
            return [asyncio.create_task(self._act("kill" if isinstance(action, Kill) else "start", action.node))]
        else:
            raise TypeError(action)
        return [asyncio.create_task(self._ask(name, request)) for name, request in requests.items()]

    async def _act(self, action: str, node: str) -> tuple[str, Reply | Unreachable]:
        """Kills or starts a node. Any node relays it; the node itself is asked last."""
        body = json.dumps({"action": action}).encode()
        request = Request("POST", f"/v1/lab/nodes/{node}", {}, _JSON, body)
        for helper in sorted(self._clients, key=lambda name: name == node):
            answer = await self._ask(helper, request)
            if isinstance(answer[1], Reply):
                break
        return answer

    async def _ask(self, name: str, request: Request) -> tuple[str, Reply | Unreachable]:
        try:
            return name, await self._clients[name].send(request)
        except Unreachable as error:
            return name, error

    def _report(self, answers: Sequence[tuple[str, Reply | Unreachable]]) -> None:
        for name, answer in answers:
            if isinstance(answer, Unreachable) or not answer.is_success:
                self._failures += 1
                fail(f"node {name}: {answer.message if isinstance(answer, Reply) else answer}", Exit.FAILED)

    async def _write(self, workload: Workload) -> None:
        """Writes at the rate of the workload. A write that fails is counted: the script may have cut or killed its
        node."""
        began = time.monotonic()
        due = 0
        flying: set[asyncio.Task[None]] = set()
        seconds, rate = workload.seconds / self._speed, workload.writes_per_s * self._speed
        while (elapsed := time.monotonic() - began) < seconds:
            for number in range(due, int(elapsed * rate)):
                if len(flying) >= IN_FLIGHT_MAX:
                    self._answers["left out"] += 1
                    continue
                node = workload.through[number % len(workload.through)]
                task = asyncio.create_task(self._write_one(node, number))
                flying.add(task)
                task.add_done_callback(flying.discard)
            due = max(due, int(elapsed * rate))
            await asyncio.sleep(0.02)
        await asyncio.gather(*flying)

    async def _write_one(self, node: str, number: int) -> None:
        path, body = key_path(f"lab/{number % KEYS}"), f"write {number} through {node}".encode()
        request = Request("PUT", path, {"timeout_ms": "3000"}, {"Content-Type": "text/plain"}, body)
        _, answer = await self._ask(node, request)
        status = answer.status if isinstance(answer, Reply) else 0
        self._answers[{200: "green", 202: "red"}.get(status, "failed")] += 1
