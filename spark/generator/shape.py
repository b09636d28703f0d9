"""What a synthetic cluster goes through, in closed form: every number of its logs follows from a position.

Its life is a row of equal cycles. In each, all nodes are together in a primary component; then the last of them, a
minority, are cut off, and the others form the next primary component while the minority's messages stay red; then
all merge, and the red messages become green behind those of the majority. Nodes send in rounds, one message of
every member in each, as real nodes do under load. The last cycle ends before its merge, so that the logs end with
yellow and red messages."""

from __future__ import annotations

from dataclasses import dataclass

NODES_MIN, NODES_MAX = 3, 26
FIRST_INCARNATION = 1_700_000_000
START_US = FIRST_INCARNATION * 1_000_000
"""When the first cycle begins, in microseconds since 1970."""

MERGE_US = 500_000
SPLIT_US = 600_000
ROUND_US = 4_000
RESTART_CYCLES = 4
"""Each node is restarted at every so many merges, each at other ones."""

WRITES_BY_PLACE = (1, 2, 1, 3, 1, 1, 4, 2, 1, 1, 2, 1, 1, 6, 1, 4)
"""How many writes a message has, by its position modulo their number."""

REJECTED_PLACE = 7
"""Of the messages at this place the last write is rejected."""

APPLIED_BY_PLACE = tuple(count - (place == REJECTED_PLACE) for place, count in enumerate(WRITES_BY_PLACE))

CYCLE_POSITIONS_MAX = 20_000
CYCLES_MIN = 3


@dataclass(frozen=True, slots=True)
class Shape:
    """How large the logs are."""

    nodes: int
    cycles: int
    together_rounds: int
    apart_rounds: int
    red_rounds: int
    """Of them the first is sent before the minority notices that it is cut off: yellow there, and demoted in the
    merge."""
    seed: int = 1

    def __post_init__(self) -> None:
        _check_nodes(self.nodes)
        if min(self.cycles, self.together_rounds - 1, self.apart_rounds, self.red_rounds - 1) < 1:
            raise ValueError("there is at least one cycle, and two rounds together and of red messages in each")

    @property
    def names(self) -> list[str]:
        return [chr(ord("a") + index) for index in range(self.nodes)]

    @property
    def minority(self) -> int:
        """How many nodes are cut off: as many as leave a majority."""
        return (self.nodes - 1) // 2

    @property
    def majority(self) -> int:
        return self.nodes - self.minority

    @property
    def together(self) -> int:
        """How many messages of a cycle are sent by all together."""
        return self.together_rounds * self.nodes

    @property
    def apart(self) -> int:
        """How many messages of a cycle are sent by the majority during the partition."""
        return self.apart_rounds * self.majority

    @property
    def reds(self) -> int:
        """How many messages of a cycle are sent by the minority during the partition."""
        return self.red_rounds * self.minority

    @property
    def cycle(self) -> int:
        return self.together + self.apart + self.reds

    @property
    def cycle_us(self) -> int:
        return MERGE_US + self.together_rounds * ROUND_US + SPLIT_US + self.apart_rounds * ROUND_US

    @property
    def last_base(self) -> int:
        """The position at which the last cycle begins."""
        return (self.cycles - 1) * self.cycle

    @property
    def majority_length(self) -> int:
        """How many messages the logs of the majority have in the end, all of them green."""
        return self.last_base + self.together + self.apart

    @property
    def minority_green(self) -> int:
        """The green line of the minority in the end: the last round together was not green when it was cut off."""
        return self.last_base + self.together - self.nodes

    @property
    def minority_yellow(self) -> int:
        return self.last_base + self.together + self.minority

    @property
    def minority_length(self) -> int:
        return self.last_base + self.together + self.reds

    # Times

    def start_us(self, cycle: int) -> int:
        return START_US + cycle * self.cycle_us

    def split_us(self, cycle: int) -> int:
        """When the network is cut."""
        return self.start_us(cycle) + MERGE_US + self.together_rounds * ROUND_US

    # Machines and views

    def restarts(self, index: int, cycle: int) -> bool:
        """Whether a node begins a new incarnation at the merge with which the cycle begins."""
        return cycle > 0 and (cycle + index) % RESTART_CYCLES == 0

    def incarnation(self, index: int, cycle: int) -> int:
        return FIRST_INCARNATION + max(0, (cycle + index) // RESTART_CYCLES * RESTART_CYCLES - index)

    def machine(self, index: int, cycle: int) -> str:
        return f"{self.names[index]}.{self.incarnation(index, cycle)}"

    def machines(self, cycle: int) -> list[str]:
        return [self.machine(index, cycle) for index in range(self.nodes)]

    def side(self, cycle: int, is_majority: bool) -> list[str]:
        machines = self.machines(cycle)
        return machines[: self.majority] if is_majority else machines[self.majority :]

    def view_together(self, cycle: int) -> str:
        return f"{2 * cycle * self.cycle + 15}.{self.machine(0, cycle)}"

    def view_apart(self, cycle: int, is_majority: bool) -> str:
        """The views of both sides have the same clock, and are told apart by their first members."""
        clock = 2 * (cycle * self.cycle + self.together + self.minority) + 15
        return f"{clock}.{self.side(cycle, is_majority)[0]}"

    @property
    def events(self) -> int:
        """How many events there are: of one message at one node, answers (all of a message's as one), and rows of
        exported logs."""
        # In rounds, each message is queued and logged at each member, and answered.
        rounds = self.together * (2 * self.nodes + 1) + self.apart * (2 * self.majority + 1)
        rounds += self.reds * (2 * self.minority + 1)
        # The messages of a primary component become green and are applied, but the last round together is yellow,
        # and then green, at the majority only.
        greened = 2 * self.nodes * (self.together - self.nodes) + 2 * self.majority * self.apart
        greened += 3 * self.majority * self.nodes
        # A merge: the minority recovers what the majority has sent, and all the red messages.
        recovered = self.apart * (1 + 4 * self.minority) + 2 * self.minority * self.nodes
        recovered += self.reds * (1 + 2 * self.majority + 3 * self.nodes) + self.minority * self.minority
        rows = self.majority * self.majority_length + self.minority * self.minority_length
        return self.cycles * (rounds + greened) + (self.cycles - 1) * recovered + rows


def shape_of(events: int, nodes: int = 3, seed: int = 1) -> Shape:
    """Returns the shape that has about so many events."""
    _check_nodes(nodes)
    positions = max(1, events // (5 * nodes + 1))
    cycle = max(60, min(CYCLE_POSITIONS_MAX, positions // CYCLES_MIN))
    minority = (nodes - 1) // 2
    return Shape(
        nodes,
        max(CYCLES_MIN, round(positions / cycle)),
        max(2, round(cycle * 0.6 / nodes)),
        max(1, round(cycle * 0.25 / (nodes - minority))),
        max(2, round(cycle * 0.15 / minority)),
        seed,
    )


def _check_nodes(nodes: int) -> None:
    if not NODES_MIN <= nodes <= NODES_MAX:
        raise ValueError(f"logs of {nodes} nodes cannot be generated, only of {NODES_MIN} to {NODES_MAX}")
