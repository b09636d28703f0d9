"""The key-value store: pure and deterministic, without a clock, a socket, a thread or a disk.

`Store` is the machine on top of the log. `operations` defines what clients can ask for, and `state.apply` what a
write does to a state. Other packages use only the names that are exported here.
"""

from kvstore.store.config import StoreConfig
from kvstore.store.feed import EVERYTHING, Feed, Interest, Waiting
from kvstore.store.figures import StoreFigures
from kvstore.store.green_state import Checkpoint, Fate, FateForgotten, GreenState, Tree, bounded, write_id
from kvstore.store.history import (
    Change,
    Compacted,
    ConflictPlace,
    FoundConflict,
    Snapshot,
    Span,
    span_of,
)
from kvstore.store.observer import Answered, AppliedMessage, Observer
from kvstore.store.operations import (
    NUMBER_MAX,
    VALUE_BYTES_MAX,
    Append,
    Condition,
    Delete,
    Exists,
    Get,
    Increment,
    InvalidWrite,
    Merge,
    Operation,
    Put,
    RevisionIs,
    ValueIs,
    Write,
    WrittenBy,
    check_key,
)
from kvstore.store.order_run import EMPTY_ORDER, Run
from kvstore.store.red_state import Preview
from kvstore.store.replies import Accepted, Ack, Answer, Done, Failed, Overloaded, Ready, Respond, Trouble
from kvstore.store.state import (
    IDEMPOTENCY_POSITIONS,
    Basis,
    Conflict,
    ConflictKind,
    Item,
    LastChange,
    Outcome,
    Remembered,
    Tombstone,
    Verdict,
    Why,
)
from kvstore.store.store import LogPort, Store
from kvstore.store.tentative_feed import (
    Recolored,
    Settled,
    TentativeEvent,
    TentativeWatcher,
    TentativeWrite,
)
from kvstore.store.write_codec import (
    BASIS_BYTES_MAX,
    BATCH_OVERHEAD_BYTES,
    WRITE_BYTES_MAX,
    WRITE_OVERHEAD_BYTES,
    Batch,
    WriteError,
    decode_batch,
    decode_write,
    encode_write,
)

__all__ = [
    # The machine and its configuration
    "Store",
    "StoreConfig",
    "StoreFigures",
    "LogPort",
    "Observer",
    "AppliedMessage",
    "Answered",
    # What clients ask for
    "Write",
    "Merge",
    "Operation",
    "Put",
    "Delete",
    "Increment",
    "Append",
    "Get",
    "Condition",
    "RevisionIs",
    "WrittenBy",
    "Exists",
    "ValueIs",
    "InvalidWrite",
    "check_key",
    "NUMBER_MAX",
    "VALUE_BYTES_MAX",
    # How they are answered
    "Ack",
    "Answer",
    "Done",
    "Accepted",
    "Failed",
    "Trouble",
    "Overloaded",
    "Respond",
    "Ready",
    "Item",
    "Outcome",
    "Verdict",
    "Why",
    # Feeds
    "Feed",
    "Interest",
    "Waiting",
    "EVERYTHING",
    "TentativeEvent",
    "TentativeWatcher",
    "TentativeWrite",
    "Recolored",
    "Settled",
    # The past, and what merges change
    "Change",
    "Snapshot",
    "Span",
    "span_of",
    "Compacted",
    "bounded",
    "Conflict",
    "ConflictKind",
    "ConflictPlace",
    "FoundConflict",
    "LastChange",
    "Basis",
    "Tombstone",
    "Preview",
    # The state on disk
    "Tree",
    "Checkpoint",
    "GreenState",
    "Fate",
    "FateForgotten",
    "Remembered",
    "Run",
    "EMPTY_ORDER",
    "IDEMPOTENCY_POSITIONS",
    # Writes as bytes
    "encode_write",
    "decode_write",
    "decode_batch",
    "Batch",
    "write_id",
    "WriteError",
    "WRITE_BYTES_MAX",
    "WRITE_OVERHEAD_BYTES",
    "BATCH_OVERHEAD_BYTES",
    "BASIS_BYTES_MAX",
]
