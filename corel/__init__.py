"""COREL: one totally ordered log that partitions cannot divide.

`Corel` is the machine, and `Replica` runs it over a membership. The names that other packages may use are exported
here; the modules that do I/O, such as `corel.lmdb_log`, are imported by their own names.
"""

from corel import record_codec
from corel.adaptive_wait import AdaptiveWait
from corel.config import CorelConfig
from corel.corel import Corel
from corel.effects import (
    CorelEvent,
    Greened,
    Logged,
    LogReport,
    Persist,
    PrimaryConfirmed,
    Queued,
    Reordered,
    StageChanged,
    Yellowed,
)
from corel.inspection import Inspected, inspect
from corel.learning import NotAhead, TakenOver, begun_anew, check_ahead, continued, take_over
from corel.message_queue import MessageQueue, chained
from corel.messages import EMPTY_DIGEST, Color, Entry, MessageId, is_bound
from corel.outbox import TooLarge, TooMuch
from corel.quorum import Roster
from corel.recovery_plan import Contradiction, OutOfReach, ReplacedDisk
from corel.replica import Replica, ReplicaEffect
from corel.stages import Cause, Phase, Stage
from corel.storage import Image, Lines, LogReader, LogSize, LogWrite, Record

__all__ = [
    # The machines, their configuration and their errors
    "Corel",
    "Replica",
    "CorelConfig",
    "Roster",
    "TooLarge",
    "TooMuch",
    "Contradiction",
    "OutOfReach",
    "ReplacedDisk",
    # What the log reports upward
    "LogReport",
    "Greened",
    "Logged",
    "PrimaryConfirmed",
    "Reordered",
    "StageChanged",
    # What it reports to the journal
    "Queued",
    "Yellowed",
    # Its other effects
    "ReplicaEffect",
    "Persist",
    "CorelEvent",
    # What inputs and effects are made of, and how to inspect the queue
    "Color",
    "Entry",
    "MessageId",
    "MessageQueue",
    "Stage",
    "Phase",
    "Cause",
    "Inspected",
    "inspect",
    "Image",
    "Lines",
    "LogSize",
    "LogReader",
    "LogWrite",
    "Record",
    "is_bound",
    # The log of another node, taken over
    "NotAhead",
    "TakenOver",
    "begun_anew",
    "check_ahead",
    "continued",
    "take_over",
    "chained",
    "EMPTY_DIGEST",
    "record_codec",
    # A bounded wait, which the store uses too
    "AdaptiveWait",
]
