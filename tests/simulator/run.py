"""What the runs of all layers have in common: the world and the network of one seed, and its trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from tests.simulator.network import Network, Weather
from tests.simulator.process import Environment
from tests.simulator.trace import Trace
from tests.simulator.world import World
from transport import codec
from transport.messages import Datagram


class SimulatedRun:
    """One seed's run of one layer. `run()` returns normally, or raises `Violation`."""

    def __init__(self, random_seed: str, weather: Weather, write: Callable[[str], None] | None) -> None:
        self.world = World()
        self.random = Random(random_seed)
        self.network: Network[Datagram] = Network(self.world, self.random, weather, datagram_bytes)
        self.environment = Environment(self.world, self.network, self.random)
        self.coverage: Counter[str] = Counter()
        """How often each kind of event happened in the run, where its layer counts them."""
        self.network.counts = self.coverage
        self._codec = codec.Codec("simulated")
        self._trace: Trace | None = None
        """Writes the run's events, if that was asked for."""
        if write is not None:
            self._trace = Trace(self.world, write)
            self.network.trace = self._trace.on_network

    def run(self) -> None:
        raise NotImplementedError


def datagram_bytes(datagram: Datagram) -> int:
    overhead = codec.datagram_overhead_bytes(datagram.sender)
    return overhead + sum(map(codec.frame_bytes, datagram.frames))
