"""A comparison for people: one table of all metrics and wall time, as text and as markdown, and its plots.

Belongs here: means and spreads over the seeds, and how they are shown.  Does not belong here: running methods
(flows/compare.py), what a metric is (flows/score_kinds.py).  Everything shown is private, and says so.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from data_contracts.comparison import Comparison, MethodRun
from data_contracts.evaluation import Metric

if TYPE_CHECKING:
    from rich.table import Table

SECONDS = "seconds"
"""Name of the line of wall times, beside the metrics' names."""

_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8B6D00")
"""Okabe and Ito's colours, told apart with any colour vision; the yellow, pale on white, is darkened and last."""

_WIDTH, _HEIGHT, _ACROSS = 250, 170, 3
_REFERENCES = ("Majority", "NonPriv")
_LOG_FROM = 20  # epsilons that span more than this factor get a logarithmic axis


@dataclass(frozen=True)
class Cell:
    """One metric of one method at one epsilon over the whole runs: mean, sample standard deviation, number of values.

    ``mean`` is None where no run was done or the metric has no value, ``sd`` also where there is one value only;
    ``note`` then says why.
    """

    mean: float | None
    sd: float | None
    values: int
    note: str = ""

    def text(self) -> str:
        """``mean ±sd``, or the note."""
        if self.mean is None:
            return self.note or "-"
        return _number(self.mean) + ("" if self.sd is None else f" ±{_number(self.sd, 2)}")


@dataclass(frozen=True)
class Line:
    """One metric of all methods: what it is, and its cells by (method, epsilon).

    ``references``: Majority and NonPriv, where the metric has them (mean over all runs).
    """

    name: str
    title: str
    unit: str
    better: Literal["lower", "higher"]
    cells: dict[tuple[str, float], Cell]
    references: dict[str, float]

    @property
    def known(self) -> bool:
        """Whether any method has a value."""
        return any(c.mean is not None for c in self.cells.values())

    def best(self, epsilon: float) -> float | None:
        """The best mean at that epsilon, None where there is none."""
        means = [c.mean for (_, e), c in self.cells.items() if e == epsilon and c.mean is not None]
        if not means:
            return None
        return min(means) if self.better == "lower" else max(means)


def lines(results: Comparison) -> list[Line]:
    """Every metric in the order in which it is computed, then the wall time."""
    kinds: dict[str, Metric] = {m.name: m for run in results.runs for m in run.metrics}
    found = []
    for name, kind in kinds.items():
        cells = {key: _cell([_value(r, name) for r in runs], note) for key, runs, note in _groups(results)}
        every = [m for run in results.runs for m in run.metrics if m.name == name]
        references = {
            label: statistics.fmean(m.references[label] for m in every)
            for label in _REFERENCES
            if every and all(label in m.references for m in every)
        }
        found.append(Line(name, kind.title, kind.unit, kind.better, cells, references))
    cells = {key: _cell([r.seconds for r in runs], note) for key, runs, note in _groups(results)}
    return [*found, Line(SECONDS, "Wall time", "seconds", "lower", cells, {})]


def missing(results: Comparison) -> list[str]:
    """Why a metric without any value has none, one sentence each."""
    found = {m.name: f"{m.title}: {m.note or 'no value'}." for run in results.runs for m in run.metrics}
    return [found[line.name] for line in lines(results) if not line.known and line.name in found]


def _groups(results: Comparison) -> Iterator[tuple[tuple[str, float], tuple[MethodRun, ...], str]]:
    """(method, epsilon), its whole runs, and why there are none."""
    for epsilon in results.epsilons:
        for method in results.methods:
            every = [r for r in results.runs if (r.method, r.epsilon) == (method.name, epsilon)]
            undone = [r.outcome for r in every if r.outcome != "done"]
            yield (method.name, epsilon), results.done(method.name, epsilon), undone[0] if undone else ""


def _value(run: MethodRun, name: str) -> float | None:
    return next((m.value for m in run.metrics if m.name == name), None)


def _cell(values: Sequence[float | None], note: str) -> Cell:
    known = [v for v in values if v is not None]
    if not known:
        return Cell(None, None, 0, note)
    return Cell(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None, len(known))


def _number(value: float, digits: int = 4) -> str:
    """That many significant digits; whole numbers from 1,000."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.{digits}g}"


def table(results: Comparison) -> Table:
    """All metrics and wall times for a terminal; the best mean of every row is bold."""
    from rich.table import Table as RichTable

    grid = RichTable(title=f"privsyn compare {results.dataset}: private", title_justify="left", header_style="bold")
    grid.add_column("epsilon", justify="right")
    grid.add_column("mean ±sd over the seeds", overflow="fold")
    for method in results.methods:
        grid.add_column(method.name, justify="right", overflow="fold")
    for epsilon in results.epsilons:
        for i, line in enumerate(lines(results)):
            grid.add_row(
                f"{epsilon:g}" if i == 0 else "", _heading(line), *_row(results, line, epsilon, "[bold]", "[/]")
            )
        grid.add_section()
    return grid


def _heading(line: Line) -> str:
    return "Wall time, seconds" if line.name == SECONDS else f"{line.title} {'↓' if line.better == 'lower' else '↑'}"


def _row(results: Comparison, line: Line, epsilon: float, start: str, end: str) -> list[str]:
    best = line.best(epsilon)
    found = []
    for method in results.methods:
        cell = line.cells[method.name, epsilon]
        mark = cell.mean is not None and cell.mean == best and len(results.methods) > 1
        found.append(f"{start}{cell.text()}{end}" if mark else cell.text())
    return found


def markdown(results: Comparison) -> str:
    """The whole page of a comparison: notice, what was compared, the methods, and the table."""
    hold_out = "" if results.rows_holdout is None else f", {results.rows_holdout:,} hold-out rows"
    head = [
        f"# Methods compared on {results.dataset}",
        "",
        f"**{results.notice}**",
        "",
        f"{results.rows_real:,} rows, {len(results.columns)} columns{hold_out}; delta {results.delta:g}, "
        f"{results.unit_of_protection}; {results.seeds} seeds. Wall times: {results.machine}.",
        "",
    ]
    notes = [f"\n{sentence}" for sentence in missing(results)]
    return "\n".join([*head, *markdown_methods(results), "", *markdown_table(results), *notes, ""])


def markdown_methods(results: Comparison) -> list[str]:
    """One row a method: what it is and where it is from."""
    rows = [f"| {m.name} | {m.description} | {m.source} |" for m in results.methods]
    return ["| method | what it does | from |", "|---|---|---|", *rows]


def markdown_table(results: Comparison, only: Sequence[str] | None = None) -> list[str]:
    """Mean ±sd over the seeds, one row a metric and epsilon, the best in bold; ``only`` some metrics."""
    names = [m.name for m in results.methods]
    rows = [
        "| metric (↓ lower, ↑ higher is better) | epsilon | " + " | ".join(names) + " |",
        "|---|---|" + "---|" * len(names),
    ]
    for line in lines(results):
        if line.known and (only is None or line.name in only):
            for epsilon in results.epsilons:
                cells = " | ".join(_row(results, line, epsilon, "**", "**"))
                rows.append(f"| {_heading(line)} | {epsilon:g} | {cells} |")
    return rows


def picture(
    results: Comparison, format_: Literal["svg", "png"], only: Sequence[str] | None = None, title: str = ""
) -> bytes:
    """One panel a metric, epsilon against mean, bars of one standard deviation, a line a method.

    ``only`` names the metrics, in their order.  Without ``title`` the notice stands on top.
    """
    import vl_convert  # here, as altair below: loading them takes a while

    shown = [line for line in lines(results) if line.known]
    if only is not None:
        by_name = {line.name: line for line in shown}
        shown = [by_name[name] for name in only if name in by_name]
    chart = _charts(results, shown, title)
    if format_ == "svg":
        return str(vl_convert.vegalite_to_svg(chart.to_dict())).encode()
    return bytes(vl_convert.vegalite_to_png(chart.to_dict(), scale=2))


def _charts(results: Comparison, shown: Sequence[Line], title: str) -> Any:
    import altair as alt

    heading = alt.Title(
        title or f"Methods compared on {results.dataset}: private",
        subtitle=f"mean and standard deviation over {results.seeds} seeds" if title else _broken(results.notice),
        anchor="start",
    )
    panels = [_panel(results, line) for line in shown]
    return (
        alt.concat(*panels, columns=_ACROSS)
        .properties(title=heading)
        .configure_view(stroke="#ccc")
        .configure_axis(grid=True, gridColor="#eee", titleFontWeight="normal")
        .configure_legend(orient="bottom", columns=4, title=None, symbolStrokeWidth=3, labelLimit=300)
    )


def _broken(text: str, most: int = 120) -> list[str]:
    import textwrap

    return textwrap.wrap(text, most)


def _panel(results: Comparison, line: Line) -> Any:
    import altair as alt

    titles = {m.name: m.title for m in results.methods}
    values = [
        {"epsilon": e, "method": titles[m], "mean": c.mean, "low": c.mean - (c.sd or 0), "high": c.mean + (c.sd or 0)}
        for (m, e), c in line.cells.items()
        if c.mean is not None
    ]
    wide = max(results.epsilons) > _LOG_FROM * min(results.epsilons)
    scale = alt.Scale(type="log" if wide else "linear", nice=False, zero=False, padding=10)
    x = alt.X("epsilon:Q", scale=scale, title="epsilon", axis=alt.Axis(values=list(results.epsilons), format="~g"))
    palette = alt.Scale(domain=list(titles.values()), range=[_COLORS[i % len(_COLORS)] for i in range(len(titles))])
    color, shape = (
        alt.Color("method:N", scale=palette),
        alt.Shape("method:N", scale=alt.Scale(domain=list(titles.values()))),
    )
    base = alt.Chart(alt.Data(values=values))
    y = alt.Y("mean:Q", title=line.unit, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5))
    layers = [
        base.mark_line(strokeWidth=1.5).encode(x, y, color),
        base.mark_rule(strokeWidth=1.5).encode(x, alt.Y("low:Q", title=line.unit), alt.Y2("high:Q"), color),
        base.mark_point(filled=True, size=45, opacity=1).encode(x, y, color, shape),
        *_references(line),
    ]
    return alt.layer(*layers).properties(width=_WIDTH, height=_HEIGHT, title=_heading(line))


def _references(line: Line) -> list[Any]:
    """Dashed lines of Majority and NonPriv, with their names."""
    import altair as alt

    if not line.references:
        return []
    values = [{"mean": v, "name": n} for n, v in line.references.items()]
    base = alt.Chart(alt.Data(values=values)).encode(alt.Y("mean:Q"))
    text = base.mark_text(align="left", baseline="top", dx=2, dy=2, color="#555", fontSize=10)
    return [base.mark_rule(strokeDash=[4, 3], color="#555"), text.encode(alt.Text("name:N"), x=alt.value(0))]
