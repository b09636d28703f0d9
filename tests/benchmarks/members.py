"""Runs the members of a benchmark, a process each, and collects their results."""

from __future__ import annotations

import multiprocessing
import multiprocessing.synchronize
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

Barrier: TypeAlias = multiprocessing.synchronize.Barrier

_END_SECONDS = 10.0


def run_members(
    target: Callable[..., None], arguments: Sequence[tuple[Any, ...]], within_seconds: float
) -> list[Any]:
    """Calls `target(*arguments, barrier, pipe)` in a process for each of the arguments, with one barrier for all,
    and returns what each process sends first through its pipe."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(arguments))
    pipes: list[Connection] = []
    processes = []
    for one in arguments:
        ours, theirs = context.Pipe()
        process = context.Process(target=target, args=(*one, barrier, theirs))
        process.start()
        pipes.append(ours)
        processes.append(process)
    try:
        return [_receive(pipe, within_seconds) for pipe in pipes]
    finally:
        for process in processes:
            process.join(_END_SECONDS)
            if process.is_alive():
                process.kill()


def _receive(pipe: Connection, within_seconds: float) -> Any:
    if not pipe.poll(within_seconds):
        raise TimeoutError("a member of the benchmark gave no result")
    return pipe.recv()
