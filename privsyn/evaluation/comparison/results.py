"""A comparison for people: one table of all metrics and wall time, and plots with one panel a metric.

Everything shown is private, and says so, unless the caller, whose table is public, gives a plot a title.
"""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import altair as alt

from privsyn.data_contracts.evaluation import Comparison, MethodRun, Metric
from privsyn.publish.markdown import escape_text

if TYPE_CHECKING:
    from rich.table import Table


SECONDS = "seconds"
"""Name of the line of wall times, beside the metrics' names."""

_REFERENCES = ("Majority", "NonPriv")

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8B6D00")
"""Okabe and Ito's colours, told apart with any colour vision; the yellow, pale on white, is darkened and last."""

_WIDTH, _HEIGHT, _ACROSS = 250, 170, 3
_LOG_FROM = 20  # epsilons that span more than this factor get a logarithmic axis


@dataclass(frozen=True)
class MetricCell:
    """One metric of one method at one epsilon over the whole runs: mean, sample standard deviation, number of values.

    ``mean`` is None if no run was done or the metric has no value, ``sd`` also where there is one value only; ``note``
    then says why.
    """

    mean: float | None
    sd: float | None
    values: int
    note: str = ""

    def text(self) -> str:
        """Return ``mean ±sd``, or the note."""
        if self.mean is None:
            return self.note or "-"
        return _format_number(self.mean) + ("" if self.sd is None else f" ±{_format_number(self.sd, 2)}")


@dataclass(frozen=True)
class MetricLine:
    """One metric of all methods: what it is, and its cells by (method, epsilon).

    ``references``: Majority and NonPriv, where the metric has them (mean over all runs).
    """

    name: str
    title: str
    unit: str
    better: Literal["lower", "higher"]
    cells: dict[tuple[str, float], MetricCell]
    references: dict[str, float]

    @property
    def known(self) -> bool:
        """Whether any method has a value."""
        return any(c.mean is not None for c in self.cells.values())

    def best(self, epsilon: float) -> float | None:
        """Return the best mean at that epsilon, None if there is none."""
        means = [c.mean for (_, e), c in self.cells.items() if e == epsilon and c.mean is not None]
        if not means:
            return None
        return min(means) if self.better == "lower" else max(means)


def list_lines(results: Comparison) -> list[MetricLine]:
    """Return every metric in the order in which it is computed, then the wall time."""
    kinds: dict[str, Metric] = {m.name: m for run in results.runs for m in run.metrics}
    lines = []
    for name, kind in kinds.items():
        cells = {
            key: _format_cell([m.value for r in runs for m in r.metrics if m.name == name], note)
            for key, runs, note in _group_runs(results)
        }
        every = [m for run in results.runs for m in run.metrics if m.name == name]
        references = {
            label: statistics.fmean(m.references[label] for m in every)
            for label in _REFERENCES
            if every and all(label in m.references for m in every)
        }
        lines.append(MetricLine(name, kind.title, kind.unit, kind.better, cells, references))
    cells = {key: _format_cell([r.seconds for r in runs], note) for key, runs, note in _group_runs(results)}
    return [*lines, MetricLine(SECONDS, "Wall time", "seconds", "lower", cells, {})]


def describe_missing(results: Comparison) -> list[str]:
    """Return why a metric without any value has none, one sentence each."""
    reasons = {m.name: f"{m.title}: {m.note or 'no value'}." for run in results.runs for m in run.metrics}
    return [reasons[line.name] for line in list_lines(results) if not line.known and line.name in reasons]


def _group_runs(results: Comparison) -> Iterator[tuple[tuple[str, float], tuple[MethodRun, ...], str]]:
    """Yield (method, epsilon), its whole runs, and why there are none."""
    for epsilon in results.epsilons:
        for method in results.methods:
            every = [r for r in results.runs if (r.method, r.epsilon) == (method.name, epsilon)]
            undone = [r.outcome for r in every if r.outcome != "done"]
            yield (method.name, epsilon), results.done(method.name, epsilon), undone[0] if undone else ""


def _format_cell(values: Sequence[float | None], note: str) -> MetricCell:
    numbers = [v for v in values if v is not None]
    if not numbers:
        return MetricCell(None, None, 0, note)
    return MetricCell(statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None, len(numbers))


def _format_number(value: float, digits: int = 4) -> str:
    """Format that many significant digits; whole numbers where those would not reach the decimal point."""
    return f"{value:,.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def build_table(results: Comparison) -> Table:
    """Return all metrics and wall times for a terminal; the best mean of every row is bold."""
    from rich.table import Table as RichTable
    from rich.text import Text

    grid = RichTable(title=f"privsyn compare {results.dataset}: private", title_justify="left", header_style="bold")
    grid.add_column("epsilon", justify="right")
    grid.add_column("mean ±sd over the seeds", overflow="fold")
    for method in results.methods:
        grid.add_column(method.name, justify="right", overflow="fold")
    for epsilon in results.epsilons:
        for i, line in enumerate(list_lines(results)):
            cells = [Text(cell, "bold" if best else "") for cell, best in _list_row(results, line, epsilon)]
            grid.add_row(f"{epsilon:g}" if i == 0 else "", Text(format_heading(line)), *cells)
        grid.add_section()
    return grid


def format_heading(line: MetricLine) -> str:
    """Return the metric's title, with an arrow to where better is; none for the wall time."""
    return "Wall time, seconds" if line.name == SECONDS else f"{line.title} {'↓' if line.better == 'lower' else '↑'}"


def _list_row(results: Comparison, line: MetricLine, epsilon: float) -> list[tuple[str, bool]]:
    """Return a cell's text for each method, and whether it is the best of several."""
    best = line.best(epsilon) if len(results.methods) > 1 else None
    cells = [line.cells[method.name, epsilon] for method in results.methods]
    return [(cell.text(), best is not None and cell.mean == best) for cell in cells]


def format_markdown(results: Comparison) -> str:
    """Return the whole page of a comparison: notice, what was compared, the methods, and the table."""
    hold_out = "" if results.rows_holdout is None else f", {results.rows_holdout:,} hold-out rows"
    head = [
        f"# Methods compared on {results.dataset}",
        "",
        f"**{results.notice}**",
        "",
        f"{results.rows_real:,} rows, {len(results.columns)} columns{hold_out}; delta {results.delta:g}, "
        f"{escape_text(results.unit_of_protection)}; {results.seeds} seeds. Wall times: {results.machine}."
        f" {results.cells}".rstrip(),
        "",
    ]
    methods = ["| method | what it does | from |", "|---|---|---|"]
    methods += [f"| {m.name} | {m.description} | {m.source} |" for m in results.methods]
    notes = [f"\n{sentence}" for sentence in describe_missing(results)]
    return "\n".join([*head, *methods, "", *list_markdown_table(results), *notes, ""])


def list_markdown_table(results: Comparison, only: Sequence[str] | None = None) -> list[str]:
    """Return mean ±sd over the seeds, one row a metric and epsilon, the best in bold; ``only`` some metrics."""
    names = [m.name for m in results.methods]
    rows = [
        "| metric (↓ lower, ↑ higher is better) | epsilon | " + " | ".join(names) + " |",
        "|---|---|" + "---|" * len(names),
    ]
    for line in list_lines(results):
        if line.known and (only is None or line.name in only):
            for epsilon in results.epsilons:
                cells = " | ".join(f"**{cell}**" if best else cell for cell, best in _list_row(results, line, epsilon))
                rows.append(f"| {format_heading(line)} | {epsilon:g} | {cells} |")
    return rows


def build_chart(results: Comparison, only: Sequence[str] | None = None, title: str = "") -> dict[str, Any]:
    """Return one panel a metric, epsilon against mean, bars of one standard deviation, a line a method; as Vega-Lite.

    ``only`` names the metrics, in their order.  Without ``title`` the notice stands on top.
    """
    shown = [line for line in list_lines(results) if line.known]
    if only is not None:
        by_name = {line.name: line for line in shown}
        shown = [by_name[name] for name in only if name in by_name]
    top = alt.Title(
        title or f"Methods compared on {results.dataset}: private",
        subtitle=f"mean and standard deviation over {results.seeds} seeds"
        if title
        else textwrap.wrap(results.notice, 120),
        anchor="start",
    )
    return {  # put together by Altair, each panel would be copied a dozen times
        "$schema": alt.SCHEMA_URL,
        "title": top.to_dict(),
        "concat": [_build_panel(results, line) for line in shown],
        "columns": _ACROSS,
        "config": {
            "view": {"stroke": "#ccc", "continuousWidth": _WIDTH, "continuousHeight": _HEIGHT},
            "axis": {"grid": True, "gridColor": "#eee", "titleFontWeight": "normal"},
            "legend": {"orient": "bottom", "columns": 4, "title": None, "symbolStrokeWidth": 3, "labelLimit": 300},
        },
    }


def _build_panel(results: Comparison, line: MetricLine) -> dict[str, Any]:
    titles = {m.name: m.title for m in results.methods}
    values = [
        {"epsilon": e, "method": titles[m], "mean": c.mean, "low": c.mean - (c.sd or 0), "high": c.mean + (c.sd or 0)}
        for (m, e), c in line.cells.items()
        if c.mean is not None
    ]
    wide = max(results.epsilons) > _LOG_FROM * min(results.epsilons)
    scale = alt.Scale(type="log" if wide else "linear", nice=False, zero=False, padding=10)
    x = alt.X("epsilon:Q", scale=scale, title="epsilon", axis=alt.Axis(values=list(results.epsilons), format="~g"))
    palette = alt.Scale(domain=list(titles.values()), range=[COLORS[i % len(COLORS)] for i in range(len(titles))])
    color = alt.Color("method:N", scale=palette)
    shape = alt.Shape("method:N", scale=alt.Scale(domain=list(titles.values())))
    base = alt.Chart(alt.Data(values=values))
    y = alt.Y("mean:Q", title=line.unit, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5))
    layers = [
        base.mark_line(strokeWidth=1.5).encode(x, y, color),
        base.mark_rule(strokeWidth=1.5).encode(x, alt.Y("low:Q", title=line.unit), alt.Y2("high:Q"), color),
        base.mark_point(filled=True, size=45, opacity=1).encode(x, y, color, shape),
        *_build_references(line),
    ]
    panel = alt.layer(*layers).properties(width=_WIDTH, height=_HEIGHT, title=format_heading(line))
    return {k: v for k, v in panel.to_dict().items() if k not in ("$schema", "config")}


def _build_references(line: MetricLine) -> list[Any]:
    """Dashed lines of Majority and NonPriv, with their names."""
    if not line.references:
        return []
    values = [{"mean": v, "name": n} for n, v in line.references.items()]
    base = alt.Chart(alt.Data(values=values)).encode(alt.Y("mean:Q"))
    text = base.mark_text(align="left", baseline="top", dx=2, dy=2, color="#555", fontSize=10)
    return [base.mark_rule(strokeDash=[4, 3], color="#555"), text.encode(alt.Text("name:N"), x=alt.value(0))]
