"""Work in a thread, awaited on the event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


async def in_thread(
    call: Callable[_Parameters, _Result], *arguments: _Parameters.args, **named: _Parameters.kwargs
) -> _Result:
    """Makes a call in a thread. The call has ended when this does, even if it is cancelled: what the call uses
    must not be closed meanwhile."""
    work = asyncio.get_running_loop().run_in_executor(None, lambda: call(*arguments, **named))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):
            await work
        raise
