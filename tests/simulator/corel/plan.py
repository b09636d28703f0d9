"""What one seed of the corel layer does: a plan of the membership layer, with disks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from corel.config import CorelConfig
from corel.quorum import Roster
from tests.simulator.corel.disk_failures import DiskFailure, draw_disk_failures
from tests.simulator.corel.generations import (
    Bootstrap,
    Replacement,
    Restore,
    draw_bootstrap,
    draw_replacements,
    draw_restore,
)
from tests.simulator.corel.truncation import Truncation, draw_truncation
from tests.simulator.corel.twins import Twin, draw_twin
from tests.simulator.membership.plan import MembershipPlan, draw_membership_plan


@dataclass(frozen=True, slots=True)
class DiskFault:
    """From a time on, a node's disk stalls or is replaced, or the node crashes after so many more effects."""

    at_ms: float
    node: str
    stall_ms: float = 0.0
    crash_after_effects: int = 0
    down_ms: float = 0.0
    is_wiped: bool = False


@dataclass(frozen=True, slots=True)
class PhaseFault:
    """A moment after any node has entered a phase for the `count`th time, some nodes crash at once, or the network
    is cut anew. So the steps of recovery and establishment are hit, short as they are."""

    phase: str
    count: int
    after_ms: float
    crashing: tuple[str, ...]
    cut_off: tuple[str, ...]
    """The nodes that hear only each other from then on."""
    down_ms: float = 0.0
    heal_after_ms: float = 0.0


PHASES = (
    "waiting for states",
    "waiting for priority messages",
    "merging red messages",
    "waiting for attempts",
    "waiting for commits",
    "primary",
)


@dataclass(frozen=True, slots=True)
class CorelPlan:
    """Everything that a seed decides."""

    seed: int
    below: MembershipPlan
    roster: Roster
    config: CorelConfig
    sync_ms: float
    disk_faults: tuple[DiskFault, ...]
    phase_faults: tuple[PhaseFault, ...]
    replacements: tuple[Replacement, ...] = ()
    bootstrap: Bootstrap | None = None
    disk_failures: tuple[DiskFailure, ...] = ()
    twin: Twin | None = None
    truncation: Truncation | None = None
    restore: Restore | None = None


def draw_corel_plan(seed: int, nodes_min: int, nodes_max: int, is_truncated: bool | None = None) -> CorelPlan:
    """Draws the plan of a seed. Whether its logs are truncated is drawn too, unless it is said."""
    random = Random(f"corel {seed}")
    below = _with_time_to_meet(draw_membership_plan(seed, nodes_min, nodes_max))
    ack_with_mark_ms = Random(f"acknowledgements {seed}").choice((3.0, 3.0, 0.0, 15.0))
    below = replace(below, config=replace(below.config, ack_with_mark_ms=ack_with_mark_ms))
    weights = dict.fromkeys(below.nodes, 1)
    if random.random() < 0.2:
        weights[random.choice(below.nodes)] = random.choice((0, 2, 3))
    roster = Roster(weights)
    sync_ms = random.choice((0.3, 2.0, 20.0))
    sizes = ((131_072, 8), (131_072, 1), (1_000, 2), (300, 2), (300, 1))
    batch_bytes_max, batches_ahead_max = random.choice(sizes)
    # A message at a time, each waiting for a slow disk, network or machine, would take longer than any run: not
    # stuck, only slow.
    if _batch_ms(below, sync_ms) > 5.0 and batch_bytes_max < 1_000:
        batches_ahead_max = 8
    bootstrap = draw_bootstrap(seed, below, roster)
    config = CorelConfig(
        batch_bytes_max=batch_bytes_max,
        batches_ahead_max=batches_ahead_max,
        bodies_bytes_max=random.choice((64 * 1_048_576, 500)),
        open_scan_max=random.choice((1_024, 2, 16)),
        outstanding_max=random.choice((4_096, 2)),
        unlogged_max=Random(f"unlogged {seed}").choice((4_096, 4_096, 8)),
        write_gather_ms=Random(f"company {seed}").choice((2.0, 2.0, 0.0, 15.0)),
        debug_invariants=True,
    )
    config, truncation = draw_truncation(seed, config, is_truncated)
    if truncation is not None and not below.messages_per_second:
        below = replace(below, messages_per_second=60.0)  # without messages nobody would be behind
    restore = None
    if truncation is not None and bootstrap is not None:
        restore = draw_restore(seed, below.nodes, roster, bootstrap)
    return CorelPlan(
        seed=seed,
        below=below,
        roster=roster,
        config=config,
        sync_ms=sync_ms,
        disk_faults=_draw_disk_faults(random, below, roster),
        phase_faults=_draw_phase_faults(random, below.nodes),
        replacements=draw_replacements(seed, below),
        bootstrap=bootstrap,
        disk_failures=draw_disk_failures(seed, below.nodes, below.duration_ms),
        twin=draw_twin(seed, below) if bootstrap is None else None,
        truncation=truncation,
        restore=restore,
    )


def _batch_ms(below: MembershipPlan, sync_ms: float) -> float:
    """Returns how long a batch takes: three trips and a sync, and the slowest machine handles two datagrams from
    each other one, which acknowledges the batch and then reports it as logged."""
    cpus = [cpu for _, cpu in below.network_faults.cpus]
    datagram_ms = max((cpu.received_ms + cpu.frame_ms for cpu in cpus), default=0.0)
    trip_ms = below.weather.delay_ms + below.weather.jitter_ms
    return 1.5 * sync_ms + 3.0 * trip_ms + 2.0 * (len(below.nodes) - 1) * datagram_ms


def _with_time_to_meet(below: MembershipPlan) -> MembershipPlan:
    """Lengthens the collection of attempts to join where the network takes longer to answer them: nine machines on
    their own may then need twenty seconds to become one view. The membership's own plans have that; here it only
    takes time."""
    round_trip_ms = 2.0 * (below.weather.delay_ms + below.weather.jitter_ms)
    if below.membership.alpha_ms >= round_trip_ms:
        return below
    return replace(below, membership=replace(below.membership, alpha_ms=2.0 * round_trip_ms))


def _draw_disk_faults(random: Random, below: MembershipPlan, roster: Roster) -> tuple[DiskFault, ...]:
    faults: list[DiskFault] = []
    for _ in range(random.choice((0, 2, 5))):
        at_ms = random.uniform(200.0, below.duration_ms)
        node = random.choice(below.nodes)
        if random.random() < 0.3:
            faults.append(DiskFault(at_ms, node, stall_ms=random.choice((50.0, 400.0, 1_500.0))))
        else:
            down_ms = random.choice((1.0, 100.0, 700.0, 2_000.0))
            faults.append(DiskFault(at_ms, node, 0.0, random.randint(0, 60), down_ms))
    if random.random() < 0.2:
        at_ms = random.uniform(200.0, below.duration_ms)
        node = random.choice(below.nodes)
        if roster.restores_vote(
            name for name in below.nodes if name != node
        ):  # else what it knew can be lost for good
            down_ms = random.choice((1.0, 300.0))
            faults.append(DiskFault(at_ms, node, 0.0, 0, down_ms, is_wiped=True))
    return tuple(sorted(faults, key=lambda fault: fault.at_ms))


def _draw_phase_faults(random: Random, nodes: tuple[str, ...]) -> tuple[PhaseFault, ...]:
    faults: list[PhaseFault] = []
    for _ in range(random.choice((0, 1, 3, 6))):
        crashing = random.sample(nodes, random.randint(0, len(nodes)))
        cut_off = random.sample(nodes, random.choice((0, 1, random.randint(1, len(nodes)))))
        faults.append(
            PhaseFault(
                phase=random.choice(PHASES),
                count=random.randint(1, 3 * len(nodes)),
                after_ms=random.choice((0.0, 0.2, 1.0, 5.0, 30.0)) * random.random(),
                crashing=tuple(crashing),
                cut_off=tuple(cut_off),
                down_ms=random.choice((1.0, 100.0, 700.0)),
                heal_after_ms=random.choice((1.0, 300.0, 1_500.0)),
            )
        )
    return tuple(faults)
