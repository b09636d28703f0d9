"""How fast the simulator is: five nodes exchanging 100 agreed messages/s on a fair network, with all checkers."""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.simulator.network import Weather
from tests.simulator.transport.plan import Load, Plan
from tests.simulator.transport.run import TransportRun
from transport.config import TransportConfig
from transport.messages import Service

SIMULATED_SECONDS = 20.0


def run(seed: int) -> float:
    """Returns the simulated seconds."""
    plan = Plan(
        seed=seed,
        nodes=tuple("abcde"),
        duration_ms=SIMULATED_SECONDS * 1_000.0,
        weather=Weather(delay_ms=0.2),
        cuts=(),
        crashes=(),
        pauses=(),
        load=Load(20.0, 1, (Service.AGREED,), 0.0, 0),
        config=TransportConfig(),
        through_codec=False,
    )
    simulation = TransportRun(plan)
    simulation.run()
    return simulation.world.now / 1_000.0


def main() -> int:
    started = time.perf_counter()
    one_core = run(1) / (time.perf_counter() - started)
    cores = os.cpu_count() or 1
    with ProcessPoolExecutor(cores) as pool:
        list(pool.map(abs, range(cores)))  # the processes have started
        started = time.perf_counter()
        simulated = sum(pool.map(run, range(2, 2 + 2 * cores)))
        all_cores = simulated / (time.perf_counter() - started)
    print("### The simulator, five nodes exchanging 100 messages/s\n")
    print(f"{one_core:.0f} times real time on one core, {all_cores:.0f} on {cores}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
