"""A forecast as a picture: epsilon against the columns that are sure, the pairs measured, and the random sample."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import altair as alt
import vl_convert

from privsyn.base.errors import RequestError

if TYPE_CHECKING:
    from privsyn.forecasts.forecast import Forecast

_COLORS = {"columns sure": "#009E73", "pairs measured": "#0072B2", "worth a random sample of": "#D55E00"}


def build_chart(forecast: Forecast) -> dict[str, Any]:
    """Return one line each for three shares, 0 to 100 per cent, over epsilon (logarithmic); as Vega-Lite."""
    rows: list[dict[str, Any]] = []
    for a in forecast.at:
        shares = {
            "columns sure": a.of("sure") / len(a.columns),
            "pairs measured": a.pairs / a.all_pairs if a.all_pairs else None,
            "worth a random sample of": a.sample,
        }
        rows += [{"epsilon": a.epsilon, "what": k, "share": v} for k, v in shares.items() if v is not None]
    known = [name for name in _COLORS if any(row["what"] == name for row in rows)]
    epsilons = [a.epsilon for a in forecast.at]
    title = alt.Title(
        f"Forecast for about {forecast.rows:,} rows",
        subtitle=textwrap.wrap(f"Assumed: {forecast.assumption}", 80),
        anchor="start",
    )
    lines = (
        alt.Chart(alt.Data(values=rows))
        .mark_line(point=alt.OverlayMarkDef(size=50), strokeWidth=2)
        .encode(
            x=alt.X(
                "epsilon:Q",
                scale=alt.Scale(type="log", nice=False, padding=12),
                axis=alt.Axis(values=epsilons, format="~g", title="epsilon"),
            ),
            y=alt.Y("share:Q", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%", title=None)),
            color=alt.Color(
                "what:N",
                scale=alt.Scale(domain=known, range=[_COLORS[name] for name in known]),
                legend=alt.Legend(orient="bottom", title=None, symbolStrokeWidth=3, labelLimit=300),
            ),
        )
    )
    content: dict[str, Any] = lines.properties(width=440, height=260, title=title).to_dict()
    return content


def write_plot(forecast: Forecast, path: Path) -> None:
    """Draw into a .png or .svg file.  RequestError for another ending or a place that cannot be written."""
    ending = path.suffix.lower()
    if ending not in (".png", ".svg"):
        raise RequestError(f"{path.name!r} ends in neither .png nor .svg", "Choose one of the two", "forecast.plot")
    content = build_chart(forecast)
    if ending == ".svg":
        picture = str(vl_convert.vegalite_to_svg(content)).encode()
    else:
        picture = bytes(vl_convert.vegalite_to_png(content, scale=1.5))
    try:
        path.write_bytes(picture)
    except OSError as error:
        problem = f"cannot write {path}: {error.strerror}"
        raise RequestError(problem, "Choose a folder that exists and is writable", "forecast.plot") from None
