"""The report's charts: one Vega-Lite specification per kind of chart, without data.

Opacity of one colour shows magnitude, so that pale means little on both a white and a black page.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import altair as alt

BLUE, VERMILION = "#2a7fb8", "#d55e00"  # told apart with any colour vision, readable on white and on black
_ROWS = alt.NamedData(name="rows")
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"
_PAIR_TOOLTIP = [
    alt.Tooltip("a:N", title="column"),
    alt.Tooltip("b:N", title="and"),
    alt.Tooltip("cells:Q", format=",", title="cells"),
]
_SHARE = ".2~%"


def build_chart_specs(columns: Sequence[str], most_l1: float) -> dict[str, dict[str, Any]]:
    """Return name -> specification of every chart.

    ``columns``: in table order; ``most_l1``: the largest error of the heat map.
    """
    maps = {
        f"association-{field}": draw_association_map(columns, field, title, most)
        for field, title, most in (
            ("real", "association, real", 1.0),
            ("synthetic", "association, synthetic", 1.0),
            ("difference", "synthetic minus real", 0.5),
        )
    }
    return {
        "heat": draw_heat_map(columns, most_l1),
        "one-way-ordered": draw_ordered_one_way(),
        "one-way-nominal": draw_nominal_one_way(),
        **maps,
        "sizes": draw_error_by_size(),
        "stages": draw_error_by_stage(),
    }


def draw_heat_map(columns: Sequence[str], most_l1: float) -> dict[str, Any]:
    """Return the lower triangle of L1 errors, with each column's error on the diagonal; measured pairs have a dot."""
    step = _choose_step(columns, 900, 9, 34)
    tooltip = [
        *_PAIR_TOOLTIP,
        alt.Tooltip("l1:Q", format=".4f", title="L1 error (0 to 2)"),
        alt.Tooltip("measured:N", title="measured together"),
        alt.Tooltip("consistent:Q", format=".4f", title="L1 before synthesis"),
        alt.Tooltip("cause:N", title="cause"),
    ]
    scale = alt.Scale(type="pow", exponent=0.75, domain=[0, most_l1 or 1], range=[0.05, 1])
    ticks = [float(f"{most_l1 * part:.2g}") for part in (1 / 8, 1 / 4, 1 / 2, 1)] if most_l1 else [0.0]
    legend = alt.Legend(orient="top", title="L1 error", values=ticks, format=".2~g", symbolType="square")
    base = alt.Chart(_ROWS).encode(**_lay_out_grid(columns, step))
    cells = base.mark_rect(color=VERMILION).encode(opacity=alt.Opacity("l1:Q", scale=scale, legend=legend))
    dots = base.mark_point(filled=True, size=max(3.0, step * step / 25), color="black", opacity=1)
    layers = [cells.encode(tooltip=tooltip), dots.transform_filter("datum.measured == 'yes'").encode(tooltip=tooltip)]
    return _finish_chart(alt.LayerChart(layer=layers, width=alt.Step(step), height=alt.Step(step)))


def draw_association_map(columns: Sequence[str], field: str, title: str, limit: float) -> dict[str, Any]:
    """Return the lower triangle of associations (-1..1): blue above 0, vermilion below, more opaque if larger."""
    labels = len(columns) <= 30
    step = _choose_step(columns, 250 if labels else 340, 3.4, 24)
    scale = alt.Scale(type="sqrt", domain=[0, limit], range=[0, 1], clamp=True)
    chart = (
        alt.Chart(_ROWS)
        .mark_rect()
        .transform_filter(f"isValid(datum.{field})")
        .transform_calculate(size=f"abs(datum.{field})", sign=f"datum.{field} < 0 ? 'below 0' : 'above 0'")
        .encode(
            **_lay_out_grid(columns, step, labels=labels, room=92),
            opacity=alt.Opacity(
                "size:Q",
                scale=scale,
                legend=alt.Legend(
                    orient="top",
                    title=None,
                    values=[0.1 * limit, 0.4 * limit, limit],
                    format=".2~f",
                    symbolType="square",
                    symbolFillColor="#8c8c8c",
                ),
            ),
            color=alt.Color(
                "sign:N",
                scale=alt.Scale(domain=["above 0", "below 0"], range=[BLUE, VERMILION]),
                legend=alt.Legend(orient="top", title=None, symbolType="square"),
            ),
            tooltip=[*_PAIR_TOOLTIP, alt.Tooltip(f"{field}:Q", format=".3f", title=title)],
        )
        .properties(width=alt.Step(step), height=alt.Step(step))
    )
    return _finish_chart(chart)


@cache
def draw_ordered_one_way() -> dict[str, Any]:
    """Return the chart of one ordered column.

    Real shares are bars; synthetic shares are dots with a band of 2 sd of the noise, within 0..1.
    """
    first = "split(datum.label, ' … ')[0]"  # the label of merged bins has the first and the last label
    axis = _thin_axis(labelOverlap="greedy", labelAngle=0, labelSeparation=8, labelLimit=90, labelExpr=first)
    x = alt.X("bin:O", sort=None, title=None, axis=axis)
    share = _share_axis(tickCount=3, minExtent=34, maxExtent=34)
    base = _build_one_way_base().encode(x=x)
    layers = [
        _build_bars(base).encode(y=alt.Y("real:Q", axis=share, title=None)),
        _build_bands(base).encode(y=alt.Y("low:Q", title=None), y2="high:Q"),
        _build_dots(base).encode(y=alt.Y("synthetic:Q", title=None)),
    ]
    return _finish_chart(alt.LayerChart(layer=layers, width=250, height=130))


@cache
def draw_nominal_one_way() -> dict[str, Any]:
    """Return the chart of one unordered column: the ordered chart turned, so that labels are readable."""
    labels = _thin_axis(labelLimit=112, minExtent=120, maxExtent=120)
    base = _build_one_way_base().encode(y=alt.Y("bin:O", sort=None, title=None, axis=labels))
    layers = [
        _build_bars(base).encode(x=alt.X("real:Q", axis=_share_axis(tickCount=4, labelFlush=True), title=None)),
        _build_bands(base).encode(x=alt.X("low:Q", title=None), x2="high:Q"),
        _build_dots(base).encode(x=alt.X("synthetic:Q", title=None)),
    ]
    return _finish_chart(alt.LayerChart(layer=layers, width=164, height=alt.Step(16)))


@cache
def draw_error_by_size() -> dict[str, Any]:
    """Return the chart of mean L1 by number of cells, with one line per number of attributes."""
    tooltip = [
        alt.Tooltip("ways:N", title="attributes"),
        alt.Tooltip("size:N", title="cells"),
        alt.Tooltip("marginals:Q", format=",", title="marginals"),
        alt.Tooltip("mean_l1:Q", format=".4f", title="mean L1"),
    ]
    cells = alt.Scale(type="log", nice=False, padding=16)
    chart = (
        alt.Chart(_ROWS)
        .mark_line(point=alt.OverlayMarkDef(size=70, filled=True))
        .encode(
            x=alt.X(
                "middle:Q",
                title="cells of the marginal",
                scale=cells,
                axis=alt.Axis(format=",", grid=False, tickCount=6),
            ),
            y=alt.Y("mean_l1:Q", title="mean L1 error (0 to 2)", axis=alt.Axis(tickCount=5)),
            color=_build_category("ways:N", "attributes"),
            tooltip=tooltip,
        )
        .properties(width=440, height=240)
    )
    return _finish_chart(chart)


@cache
def draw_error_by_stage() -> dict[str, Any]:
    """Return the chart of mean L1 after each stage, for measured marginals and for unmeasured pairs."""
    base = alt.Chart(_ROWS).encode(
        y=alt.Y("stage:N", sort=None, title=None, axis=alt.Axis(labelLimit=260, ticks=False)),
        x=alt.X("mean_l1:Q", title="mean L1 error (0 to 2; measured: no upper bound)", axis=alt.Axis(tickCount=5)),
        tooltip=[
            alt.Tooltip("stage:N", title="after"),
            alt.Tooltip("mean_l1:Q", format=".4f", title="mean L1"),
            alt.Tooltip("marginals:Q", format=",", title="marginals"),
        ],
    )
    bars = base.mark_bar(height={"band": 0.7}).encode(color=_build_category("over:N", None))
    text = base.mark_text(align="left", dx=4).encode(text=alt.Text("mean_l1:Q", format=".3f"))
    return _finish_chart(alt.LayerChart(layer=[bars, text], width=330, height=alt.Step(30)))


def _build_category(field: str, title: str | None) -> alt.Color:
    legend = alt.Legend(orient="top")
    return alt.Color(
        field, title=title, legend=legend, scale=alt.Scale(range=[BLUE, VERMILION, "#009e73", "#b0679b", "#8c8c8c"])
    )


def _build_one_way_base() -> alt.Chart:
    tooltip = [
        alt.Tooltip("bin:N", title="value"),
        alt.Tooltip("real:Q", format=_SHARE, title="real"),
        alt.Tooltip("synthetic:Q", format=_SHARE, title="synthetic"),
        alt.Tooltip("noise:N", title="noise (2 sd)"),
    ]
    return (
        alt.Chart(_ROWS)
        .transform_calculate(band="isValid(datum.sd) ? 2 * datum.sd : 0")
        .transform_calculate(
            low="max(0, datum.synthetic - datum.band)",
            high="min(1, datum.synthetic + datum.band)",
            beyond="isValid(datum.sd) && abs(datum.real - datum.synthetic) > datum.band",
            cut="datum.synthetic + datum.band > 1 ? ', drawn up to 100%' : ''",
        )
        .transform_calculate(
            noise=f"isValid(datum.sd) ? '± ' + format(datum.band, '{_SHARE}') + datum.cut : 'not known'"
        )
        .encode(tooltip=tooltip)
    )


def _build_bars(base: alt.Chart) -> alt.Chart:
    return base.mark_bar(color=BLUE).encode(opacity=alt.condition("datum.beyond", alt.value(0.95), alt.value(0.4)))


def _build_bands(base: alt.Chart) -> alt.Chart:
    return base.mark_rule(color=VERMILION, strokeWidth=2.5, opacity=0.6)


def _build_dots(base: alt.Chart) -> alt.Chart:
    return base.mark_point(color=VERMILION, filled=True, size=16, opacity=1)


def _share_axis(**options: Any) -> alt.Axis:
    return alt.Axis(format=".0%", title=None, domain=False, ticks=False, **options)


def _thin_axis(**options: Any) -> alt.Axis:
    return alt.Axis(ticks=False, domain=False, labelPadding=5, **options)


def _choose_step(columns: Sequence[str], room: float, least: float, limit: float) -> float:
    return max(least, min(limit, room / max(1, len(columns))))


def _lay_out_grid(columns: Sequence[str], step: float, *, labels: bool = True, room: int = 160) -> dict[str, Any]:
    axis: dict[str, Any] = {
        "title": None,
        "ticks": False,
        "domain": False,
        "labels": labels,
        "labelFontSize": min(11.0, step - 0.5),
    }
    scale = alt.Scale(domain=list(columns), paddingInner=0.06)
    return {
        "x": alt.X(
            "a:N",
            scale=scale,
            axis=alt.Axis(labelAngle=-60 if step >= 14 or not labels else -90, labelLimit=room, **axis),
        ),
        "y": alt.Y("b:N", scale=scale, axis=alt.Axis(labelLimit=room, **axis)),
    }


def _finish_chart(chart: alt.Chart | alt.LayerChart) -> dict[str, Any]:
    """Return the chart as JSON: no background, one font, no ARIA text on marks (the page describes charts)."""
    configured = (
        chart.configure(background="transparent", font=_FONT, aria=False, padding=2)
        .configure_view(stroke=None)
        .configure_axis(titleFontWeight="normal", titleFontSize=12, gridOpacity=0.5)
        .configure_legend(titleFontWeight="normal")
    )
    return configured.to_dict()
