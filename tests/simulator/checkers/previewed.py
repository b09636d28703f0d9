"""A preview says what the model says of the same messages in the same order, on top of the node's green state."""

from __future__ import annotations

from typing import NamedTuple

from corel.messages import Color
from kvstore.store.red_state import Preview
from kvstore.store.state import Item, Outcome
from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.store import PreviewLook, StoreChecker
from tests.simulator.store.model import Forecast, Placed


class _Foreseen(NamedTuple):
    """A preview without revisions: the model has some where there are none yet."""

    write_id: str
    color: Color
    outcome: Outcome
    changes: tuple[tuple[str, Item | None, Item | None], ...]


class Previewed(StoreChecker):
    def previewed(self, look: PreviewLook) -> None:
        self.history.replay.advance()
        forecast = Forecast(self.history.replay, look.line, [message_id for message_id, _ in look.order])
        expected = [
            _expected(forecast, placed, look.order[placed.position - look.line][1])
            for placed in forecast.writes
            if placed.position >= look.line
        ]
        found = list(map(_without_revisions, look.found))
        for one, other in zip(found, expected, strict=False):
            if one != other:
                raise Violation(f"{look.node} foresees {one}, not {other}")
        if len(found) != len(expected):
            raise Violation(f"{look.node} foresees what {len(found)} writes do, of {len(expected)}")


def _without_revisions(preview: Preview) -> _Foreseen:
    changes = tuple([(key, _bare(before), _bare(after)) for key, before, after in preview.changes])
    return _Foreseen(preview.write_id, preview.color, preview.outcome._replace(revision=None), changes)


def _expected(forecast: Forecast, placed: Placed, color: Color) -> _Foreseen:
    revision = placed.outcome.revision
    changes: tuple[tuple[str, Item | None, Item | None], ...] = ()
    if revision is not None and forecast.changers[revision : revision + 1] == [placed.write_id]:
        items = forecast.feed[revision - 1].items
        changes = tuple([(key, _bare(forecast.item(key, revision - 1)), _bare(item)) for key, item in items])
    return _Foreseen(placed.write_id, color, placed.outcome._replace(revision=None), changes)


def _bare(item: Item | None) -> Item | None:
    return None if item is None else item._replace(revision=None)
