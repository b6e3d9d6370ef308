"""The plots of a comparison: one panel a metric, epsilon against error, a line a method.

What is drawn is private, and says so on top unless the caller, whose table is public, gives a title.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import altair as alt

from privsyn.data_contracts.evaluation_results import Comparison
from privsyn.evaluation.comparison.result_tables import MetricLine, format_heading, list_lines

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8B6D00")
"""Okabe and Ito's colours, told apart with any colour vision; the yellow, pale on white, is darkened and last."""

_WIDTH, _HEIGHT, _ACROSS = 250, 170, 3
_LOG_FROM = 20  # epsilons that span more than this factor get a logarithmic axis


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
