"""Answers as bars with error bars."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import altair as alt
import vl_convert

from privsyn.answers.answer_table import FIGURES
from privsyn.base.errors import RequestError

if TYPE_CHECKING:
    import pandas as pd

_COLORS = {
    "measured": "#0072B2",
    "implied": "#56B4E9",
    "simulated": "#009E73",
    "bounded": "#E69F00",
    "model": "#D55E00",
    "not known": "#999999",
}
MOST_BARS = 200
"""Most answers that one picture shows."""


def build_chart(answers: pd.DataFrame) -> dict[str, Any]:
    """Return a bar an answer with its interval, coloured by its source; as Vega-Lite.

    Raises RequestError for no answers, or for more than MOST_BARS.
    """
    if not 1 <= len(answers) <= MOST_BARS:
        raise RequestError(
            f"{len(answers):,} answers make no picture: 1 to {MOST_BARS} do", "Ask for fewer levels", "query.plot"
        )
    labels = [c for c in answers.columns if c not in FIGURES]
    shown = answers[list(FIGURES)].copy()
    shown["answer"] = (
        answers[labels].astype(str).agg(", ".join, axis=1) if labels else [answers.attrs.get("about", "all")]
    )
    rows = [{k: None if v != v else v for k, v in row.items()} for row in shown.to_dict("records")]
    across = alt.Y("answer:N", sort=None, title=", ".join(labels) or None, axis=alt.Axis(labelLimit=300))
    sources = [s for s in _COLORS if s in set(shown["source"])]
    scale = alt.Scale(domain=sources, range=[_COLORS[s] for s in sources])
    base = alt.Chart(alt.Data(values=rows))
    bars = base.mark_bar(opacity=0.6).encode(
        x=alt.X("estimate:Q", title="estimate, with its interval"),
        y=across,
        color=alt.Color("source:N", scale=scale, legend=alt.Legend(orient="bottom", title=None)),
    )
    errors = base.mark_rule(size=1.5).encode(x=alt.X("low:Q"), x2="high:Q", y=across)
    title = alt.Title(textwrap.wrap(str(answers.attrs.get("about", "")), 90), anchor="start")
    content: dict[str, Any] = (bars + errors).properties(width=420, title=title).to_dict()
    return content


def draw_chart(answers: pd.DataFrame, format_: Literal["png", "svg"]) -> bytes:
    """Return the picture.  Errors as :func:`build_chart`."""
    content = build_chart(answers)
    if format_ == "svg":
        return str(vl_convert.vegalite_to_svg(content)).encode()
    return bytes(vl_convert.vegalite_to_png(content, scale=1.5))


def write_plot(answers: pd.DataFrame, path: Path) -> None:
    """Draw the answers into a .png or .svg file.  RequestError for another ending or a place that cannot be written."""
    ending = path.suffix.lower()
    if ending not in (".png", ".svg"):
        raise RequestError(f"{path.name!r} ends in neither .png nor .svg", "Choose one of the two", "query.plot")
    picture = draw_chart(answers, "svg" if ending == ".svg" else "png")
    try:
        path.write_bytes(picture)
    except OSError as error:
        problem = f"cannot write {path}: {error.strerror}"
        raise RequestError(problem, "Choose a folder that exists and is writable", "query.plot") from None
