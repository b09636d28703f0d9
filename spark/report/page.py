"""One HTML page that needs nothing else: plots, tables and plotly's code are in it.

Everything in it that comes from data is escaped. The page may not load anything from anywhere, which a content
security policy in it says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

ROWS_MAX = 200
"""Most rows of a table on the page; the results beside it have all of them."""

_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"

_STYLE = """
:root { color-scheme: light; font-family: system-ui, sans-serif; }
body { margin: 0 auto; max-width: 1200px; padding: 1rem; color: #212121; background: #fff; }
h1 { margin: 0.2rem 0; } h3 { margin: 1.2rem 0 0.3rem; }
h2 { margin: 2rem 0 0.5rem; border-bottom: 1px solid #ccc; }
.verdict { padding: 0.8rem 1rem; border-radius: 6px; font-size: 1.2rem; font-weight: 600; color: #fff; }
.good { background: #2e7d32; } .bad { background: #c62828; } .open { background: #795500; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr)); gap: 1rem; }
.plot { min-width: 0; overflow: hidden; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.85rem; }
th, td { padding: 0.2rem 0.6rem; text-align: left; border-bottom: 1px solid #e0e0e0; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
p { overflow-wrap: anywhere; }
p.note { color: #555; margin: 0.2rem 0 0.6rem; max-width: 60rem; }
td { overflow-wrap: anywhere; max-width: 40rem; }
nav { display: flex; flex-wrap: wrap; gap: 0 1rem; }
"""


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    note: str = ""
    total: int | None = None
    """How many rows there are in all, if these are not all of them."""


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    figures: Sequence[go.Figure | None] = ()
    tables: Sequence[Table] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    title: str
    verdict: str
    verdict_class: str
    """`good`, `bad` or `open`."""
    summary: Sequence[str] = ()
    sections: list[Section] = field(default_factory=list)


def render(page: Page) -> str:
    """Returns the page as HTML."""
    return "".join(_parts(page))


def _parts(page: Page) -> Iterator[str]:
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escape(page.title)}</title><style>{_STYLE}</style>"
    yield f"<script>{get_plotlyjs()}</script></head><body>\n<h1>{escape(page.title)}</h1>"
    yield f'<p class="verdict {page.verdict_class}" role="status">{escape(page.verdict)}</p>'
    yield "".join(f"<p>{escape(line)}</p>" for line in page.summary)
    shown = [section for section in page.sections if any(section.figures) or section.tables or section.note]
    links = (f'<a href="#part{place}">{escape(section.title)}</a>' for place, section in enumerate(shown))
    yield f"<nav>{''.join(links)}</nav>"
    for place, section in enumerate(shown):
        yield from _section(f"part{place}", section)
    # The first plot of a row is drawn before the others are there, in the width of all of them.
    yield '<script>addEventListener("load", () => dispatchEvent(new Event("resize")))</script></body></html>\n'


def _section(name: str, section: Section) -> Iterator[str]:
    yield f'\n<section id="{name}"><h2>{escape(section.title)}</h2>'
    if section.note:
        yield f'<p class="note">{escape(section.note)}</p>'
    figures = [figure for figure in section.figures if figure is not None]
    if figures:
        yield '<div class="plots">'
        for place, figure in enumerate(figures):
            yield f'<div class="plot">{_plot(f"{name}-plot{place}", figure)}</div>'
        yield "</div>"
    for table in section.tables:
        yield from _table(table)
    yield "</section>"


def _plot(name: str, figure: go.Figure) -> str:
    """Returns a plot below its title, which is outside of it so that it can have several lines on a narrow
    screen."""
    title = figure.layout.title.text or ""
    untitled = go.Figure(figure).update_layout(title=None, margin_t=10)
    html: str = untitled.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=name,
        config={"displaylogo": False, "responsive": True},
    )
    return f"<h3>{escape(title)}</h3>{html}"


def _table(table: Table) -> Iterator[str]:
    yield f"<h3>{escape(table.title)}</h3>"
    if table.note:
        yield f'<p class="note">{escape(table.note)}</p>'
    if not table.rows:
        yield "<p>None.</p>"
        return
    heads = "".join(f'<th scope="col">{escape(column)}</th>' for column in table.columns)
    yield f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>'
    for row in table.rows[:ROWS_MAX]:
        yield f"<tr>{''.join(_cell(value) for value in row)}</tr>"
    yield "</tbody></table></div>"
    total = len(table.rows) if table.total is None else table.total
    shown = min(len(table.rows), ROWS_MAX)
    if total > shown:
        yield f'<p class="note">The first {shown:,} of {total:,}.</p>'


def _cell(value: object) -> str:
    kind = ' class="number"' if isinstance(value, (int, float)) and not isinstance(value, bool) else ""
    return f"<td{kind}>{escape(_text(value))}</td>"


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 10.0 else f"{value:,.1f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return str(value)


def table_of(title: str, rows: Iterable[Mapping[str, Any]], names: str, note: str = "") -> Table:
    """Returns a table of these columns, which are named with spaces between them."""
    columns = names.split()
    heads = [name.replace("_", " ") for name in columns]
    return Table(title, heads, [[row[name] for name in columns] for row in rows], note)
