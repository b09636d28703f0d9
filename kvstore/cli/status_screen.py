"""The picture of `corelkv status --watch`: what `status_model` has seen, drawn with rich.

Every colour has a word or a character of its own beside it, so that the picture says the same without colours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich import box
from rich.align import Align
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.text import Text

from kvstore.cli.node_state import DiskUse
from kvstore.cli.output import printable
from kvstore.cli.status_model import Notice, SeenCluster, SeenNode

_INDENT = 4
_GREEN_MIN = 20
"""How many green messages a bar shows at least, if there are so many."""

STATE_STYLES = {
    "primary": "bold green",
    "establishing": "bold yellow",
    "recovering": "bold yellow",
    "non primary": "bold red",
    "away": "bold red",
}


class Glyphs(NamedTuple):
    green: str
    yellow: str
    red: str
    nothing: str


UNICODE = Glyphs("█", "▒", "░", "·")
ASCII = Glyphs("#", "+", "-", ".")


class StatusScreen:
    """One picture, at a moment of the monotonic clock. `clock` is the time of day to show."""

    def __init__(self, cluster: SeenCluster, now: float, clock: str) -> None:
        self._cluster = cluster
        self._now = now
        self._clock = clock

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        glyphs = ASCII if options.ascii_only else UNICODE
        scale = Scale.over(self._cluster.nodes)
        notice = self._cluster.notice(self._now)
        top: list[RenderableType] = [_cut(self._header(), options)]
        top += [] if notice is None else [_panel(notice)]
        top.append(_cut(_legend(glyphs, scale), options))
        blocks = [Group(*self._block(node, scale, glyphs, options)) for node in self._cluster.nodes]
        heights = [len(console.render_lines(part, options)) for part in (*top, *blocks)]
        yield from top
        yield from _fitted(blocks, heights[len(top) :], options.max_height - sum(heights[: len(top)]))

    def _header(self) -> Text:
        nodes = self._cluster.nodes
        answering = sum(node.is_answering for node in nodes)
        [asked] = [node for node in nodes if node.name == self._cluster.asked]
        text = Text()
        text.append("corelkv", "bold").append(f"  {self._clock}  ")
        text.append(f"{answering} of {len(nodes)} nodes answer", "" if answering == len(nodes) else "bold red")
        return text.append(f"  asked: {asked.name} at {printable(asked.url or '')}  ").append("Ctrl-C ends", "dim")

    def _block(self, node: SeenNode, scale: Scale, glyphs: Glyphs, options: ConsoleOptions) -> list[Text]:
        width = options.max_width
        lines = [_cut(self._title(node), options)]
        if (state := node.state) is not None:
            bar = scale.bar(state.green, state.yellow, state.end, max(width - _INDENT - 2, 10), glyphs)
            lines.append(Text(" " * _INDENT).append("[").append_text(bar).append("]"))
            lines += _packed(self._facts(node), width - _INDENT)
            lines += [
                Text(f"{' ' * _INDENT}warning: {printable(warning)}", "bold yellow") for warning in state.warnings
            ]
            if state.disk != "ok":
                lines.append(Text(f"{' ' * _INDENT}disk: {printable(state.disk)}", "bold red"))
        if not node.is_answering:
            for line in lines[1:]:
                line.stylize("dim")
        return lines

    def _title(self, node: SeenNode) -> Text:
        text = Text().append(f"{node.name:<{_INDENT - 1}} ", "bold")
        if node.url is None:
            return text.append("its URL is not known: start nodes with --urls", "bold magenta")
        state = node.state
        if not node.is_answering:
            if state is None and not node.problem:
                return text.append("being asked", "dim")
            silent = f"NO ANSWER for {node.silent_seconds(self._now):.1f} s"
            text.append(silent, "bold magenta")
            text.append(f" ({printable(node.problem)})")
            return text if state is None else text.append(f", was {state.label}", "dim")
        assert state is not None
        text.append(state.label.upper(), STATE_STYLES.get(state.label, "bold red"))
        text.append(f"  view {printable(state.view)} of {printable(','.join(state.members))}")
        text.append(f"  incarnation {state.incarnation}")
        return text.append("  chaos", "bold magenta") if state.is_disturbed else text

    def _facts(self, node: SeenNode) -> Iterable[Text]:
        state = node.state
        assert state is not None
        yield Text(f"green {state.green:,}", "green")
        yield Text(f"yellow {state.yellow:,}", "yellow")
        yield Text(f"red {state.red:,}", "bold red" if state.red else "")
        if (rate := node.rate) is not None:
            yield Text(f"{rate.writes:,.0f} writes/s in {rate.messages:,.0f} messages/s")
        yield Text(f"revision {state.revision:,}")
        yield Text(f"primary {state.committed:,} (attempted {state.attempted:,})")
        if state.held_writes:
            yield Text(f"{state.held_writes:,} writes wait", "yellow")
        if state.disk_use.map:
            yield Text(_disk(state.disk_use))


class Scale(NamedTuple):
    """The positions of the queue that all bars show: the same, so that one sees who is behind."""

    first: int
    last: int

    @classmethod
    def over(cls, nodes: Sequence[SeenNode]) -> Scale:
        """From somewhat before the first message that is not green everywhere to the last message anywhere."""
        states = [node.state for node in nodes if node.state is not None]
        if not states:
            return cls(0, 1)
        last = max(state.end for state in states)
        lowest = min(state.green for state in states)
        return cls(max(lowest - max((last - lowest) // 3, _GREEN_MIN), 0), max(last, 1))

    def bar(self, green: int, yellow: int, end: int, width: int, glyphs: Glyphs) -> Text:
        """The queue, with `G` at its green line and `Y` at its yellow line. A zone that has a message has at least
        one character, however small its share is."""
        to_green, to_yellow, to_end = (self._cell(position, width) for position in (green, yellow, end))
        to_yellow = max(to_yellow, to_green + (yellow > green))
        to_end = max(to_end, to_yellow + (end > yellow))
        surplus = max(to_end - width, 0)
        to_green, to_yellow, to_end = (max(one - surplus, 0) for one in (to_green, to_yellow, to_end))
        zones = (
            (_with_mark(glyphs.green, to_green, "G"), "green"),
            (_with_mark(glyphs.yellow, to_yellow - to_green, "Y"), "yellow"),
            (glyphs.red * (to_end - to_yellow), "red"),
            (glyphs.nothing * (width - to_end), "dim"),
        )
        return Text.assemble(*zones)

    def _cell(self, position: int, width: int) -> int:
        share = (position - self.first) / max(self.last - self.first, 1)
        return round(min(max(share, 0.0), 1.0) * width)


def _with_mark(glyph: str, count: int, mark: str) -> str:
    return glyph * (count - 1) + mark if count > 0 else ""


def _panel(notice: Notice) -> Panel:
    text = Text(f"{notice.headline}\n", "bold", justify="center")
    text.append(printable(notice.text), "not bold")
    return Panel(Align.center(text), box=box.HEAVY, style="white on red", padding=(0, 1))


def _legend(glyphs: Glyphs, scale: Scale) -> Text:
    text = Text()
    text.append(f"{glyphs.green}G", "green").append(" green: final  ")
    text.append(f"{glyphs.yellow}Y", "yellow").append(" yellow: about to be  ")
    text.append(glyphs.red, "red").append(f" red: order open  messages {scale.first:,} to {scale.last:,}")
    return text


def _packed(facts: Iterable[Text], width: int) -> list[Text]:
    """As many facts to a line as it has room for, without splitting any."""
    lines: list[Text] = []
    for fact in facts:
        if lines and lines[-1].cell_len + 2 + fact.cell_len <= width + _INDENT:
            lines[-1].append("  ").append_text(fact)
        else:
            lines.append(Text(" " * _INDENT).append_text(fact))
    return lines


def _fitted(blocks: Sequence[Group], heights: Sequence[int], height: int) -> Iterable[RenderableType]:
    """The blocks that there is room for, apart if possible, and how many there is none for."""
    if sum(heights) + len(blocks) <= height:
        return [Group(Text(""), block) for block in blocks]
    if sum(heights) <= height:
        return blocks
    count = 0
    for taken in heights:
        height -= taken
        if height < 1:
            break
        count += 1
    left = Text(f"{len(blocks) - count} more: enlarge the terminal, or see corelkv status", "bold yellow")
    return [*blocks[:count], left]


def _cut(text: Text, options: ConsoleOptions) -> Text:
    """The text on one line."""
    text.truncate(options.max_width, overflow="crop" if options.ascii_only else "ellipsis")
    return text


def _disk(use: DiskUse) -> str:
    text = f"disk {_size(use.used)} of {_size(use.map)} ({100 * use.used // use.map} %)"
    if use.file_system:
        text += f", file system {100 - 100 * use.free // use.file_system} % full"
    return text


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
