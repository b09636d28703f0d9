"""The protocol machines of one node, put together: Lansis under Group under Corel, as one `Replica`."""

from __future__ import annotations

import logging
from random import Random

from corel import Corel, Replica
from corel.lmdb_log import LmdbLog
from kvstore.node.config import NodeConfig
from membership import Group
from transport import Machine, Milliseconds

logger = logging.getLogger("corelkv")


def build_stack(
    config: NodeConfig,
    me: Machine,
    log: LmdbLog,
    clock_floor: int,
    receive_buffer_bytes: int,
    now: Milliseconds,
) -> Replica:
    """Builds a stack that continues from what is on disk: above its clock, and with its messages."""
    transport = config.transport.with_window_for(receive_buffer_bytes)
    if transport.window_bytes_max < config.transport.window_bytes_max:
        logger.warning(
            "the window is %d bytes instead of transport.window_bytes_max, %d: the kernel granted a receive "
            "buffer of %d bytes only; raise net.core.rmem_max",
            transport.window_bytes_max,
            config.transport.window_bytes_max,
            receive_buffer_bytes,
        )
    image = log.load()
    group = Group(me, config.membership, transport, Random(), now, max(clock_floor, image.lines.clock))
    return Replica(group, Corel(me, group.view, config.roster, config.log, image, log))
