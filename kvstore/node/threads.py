"""Work in a thread, awaited on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


async def in_thread(
    call: Callable[_Parameters, _Result], *arguments: _Parameters.args, **named: _Parameters.kwargs
) -> _Result:
    """Makes a call in a thread. The call has ended when this does, however often it is cancelled: what the call
    uses must not be closed meanwhile."""
    work = asyncio.get_running_loop().run_in_executor(None, lambda: call(*arguments, **named))
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        work.exception()  # it is not told to anybody
        raise cancelled
    return work.result()
