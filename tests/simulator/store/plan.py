"""What one seed of the store layer does: a plan of the log's layer, with clients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from kvstore.store.config import StoreConfig
from tests.simulator.corel.plan import CorelPlan, draw_corel_plan


@dataclass(frozen=True, slots=True)
class StorePlan:
    """Everything that a seed decides."""

    seed: int
    corel: CorelPlan
    store: StoreConfig
    checkpoint_items_max: int
    clients: int
    think_ms: float
    """How long a client waits between an answer and its next request, on average."""
    read_share: float
    keys: int
    """How many keys there are of each kind."""
    idempotency_positions: int
    """For how many messages an idempotency key is remembered."""
    keyed_share: float
    """The share of writes with an idempotency key."""
    retry_share: float
    """How often a client retries what it has no certain answer to, or what was refused."""
    look_share: float
    """How often a client whose write was answered as green reads it at another node at once."""
    loyal_share: float
    """How often a client stays with its node."""
    timeouts_ms: tuple[float, ...]
    large_share: float
    orderly_share: float
    """The share of crashes that are orderly stops: the node has answered its clients that it leaves."""
    keep_green_share: float
    """The share of writes that yield."""
    watchers: int
    hop_ms: float
    """How long a watcher stays at a node, on average."""
    lookers: int
    """How many read lists, the past and conflicts."""
    tentative_readers: int
    """How many watch what is not green, and ask for previews."""
    tentative_events_max: int
    """Most events that wait for one of them."""


def draw_store_plan(seed: int, nodes_min: int, nodes_max: int, is_truncated: bool | None = None) -> StorePlan:
    """Draws the plan of a seed. Whether its logs are truncated is drawn too, unless it is said."""
    random = Random(f"store {seed}")
    corel = draw_corel_plan(seed, nodes_min, nodes_max, is_truncated)
    clients = random.choice((3, 8, 20))
    waiting = Random(f"rounds {seed}")
    feeds = Random(f"feeds {seed}")
    config = replace(corel.config, submitted_max=random.choice((16_384, 1)))
    return StorePlan(
        seed=seed,
        corel=replace(
            corel,
            config=config,
            below=replace(corel.below, messages_per_second=0.0),
            bootstrap=None,  # clients would have to know which cluster they speak to
            twin=None,  # and to which of two nodes
        ),
        store=StoreConfig(
            held_max=random.choice((8_192, 8_192, 3)),
            held_bytes_max=random.choice((64 * 1_048_576, 300)),
            batch_bytes_max=random.choice((262_144, 300)),
            batch_writes_max=random.choice((2_048, 2_048, 2)),
            messages_ahead_max=random.choice((1, 1, 6)),
            gather_ms=waiting.choice((4.0, 0.0, 40.0)),
            round_ms=waiting.choice((25.0, 0.0, 400.0)),
            apply_writes_max=random.choice((1_024, 1, 5)),
            checkpoints_max=waiting.choice((64, 2)),
            checkpoint_ms=random.choice((1_000.0, 100.0, 10.0)),
            history_revisions=feeds.choice((100_000, 100_000, 60, 12, 3, 0)),
        ),
        checkpoint_items_max=random.choice((1_024, 20, 4)),
        clients=clients,
        think_ms=1_000.0 * clients / random.choice((60.0, 200.0, 600.0)),
        read_share=random.choice((0.2, 0.5, 0.8)),
        keys=random.choice((1, 2, 5)),
        idempotency_positions=Random(f"idempotency {seed}").choice((1_000_000, 1_000_000, 400, 150, 50, 12)),
        keyed_share=random.choice((0.2, 0.6, 1.0)),
        retry_share=random.choice((0.3, 0.9)),
        look_share=random.choice((0.0, 0.5, 1.0)),
        loyal_share=random.choice((0.0, 0.8)),
        timeouts_ms=random.choice(((20.0, 200.0), (500.0,), (100.0, 2_000.0), (5_000.0, 40.0))),
        large_share=random.choice((0.0, 0.0, 0.03)),
        orderly_share=random.choice((0.0, 0.5)),
        keep_green_share=feeds.choice((0.0, 0.2, 0.6)),
        watchers=feeds.choice((1, 4, 10)),
        hop_ms=feeds.choice((30.0, 300.0, 3_000.0)),
        lookers=feeds.choice((1, 3)),
        tentative_readers=feeds.choice((1, 3)),
        tentative_events_max=feeds.choice((4_096, 4_096, 6)),
    )
