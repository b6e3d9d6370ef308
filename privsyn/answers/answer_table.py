"""Answers as tidy tables, one row an answer with its estimate, error, interval and source, and as bars."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from privsyn.base.errors import RequestError

if TYPE_CHECKING:
    import pandas as pd

FIGURES = ("estimate", "std_error", "low", "high", "source")

_OWN = {*FIGURES, "probability"}
"""Column names that an answer uses itself."""

SOURCE_MEANINGS = {
    "measured": "measured: noisy counts of these columns, combined with all other counts that bear on them. The "
    "interval covers the noise. Do not read single counts below about three standard errors as people.",
    "implied": "implied: noisy counts, with values spread evenly inside the cells that the condition or the mean cuts. "
    "The interval allows for any other place. Do not ask for finer steps than the release's bins.",
    "model": "model: these columns were not measured together. The estimate comes from the synthetic rows and is not a "
    "measurement, so it has no standard error. The interval covers all that the released counts and scores allow.",
    "bounded": "bounded: only one row of each person was counted, and all rows together. The interval follows from "
    "these counts and the estimate from the synthetic persons. The interval is wide, and holds at least as often as it "
    "says.",
    "simulated": "simulated: synthetic rows were measured with the same noise and made anew many times. Every pair "
    "of these columns was measured. Relations of three or more columns beyond their pairs are not included.",
    "not known": "not known: nothing that was released bounds the error. The estimate comes from the synthetic rows; "
    "do not rely on it.",
}
"""Source -> what it means, and what not to do with it."""

NOT_A_SAMPLE = "The intervals are about the private table that was released, not about the population behind it."

POPULATION_NOTE = "The intervals are about the population, as if the private table were a random sample of it."

SECONDS_NOTE = "Dates are seconds since 1970-01-01, times of day seconds since midnight."

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


def name_label(column: str) -> str:
    """Return the heading for the labels of a released column: its name, unless an answer uses that name itself."""
    return f"{column} (column)" if column in _OWN else column


def collect_labels(by: Sequence[str], labels: Sequence[tuple[str, ...]]) -> Mapping[str, list[str]]:
    """Return the label columns; ``labels`` has one tuple an answer, with one label for each column of ``by``."""
    return {name_label(column): [label[i] for label in labels] for i, column in enumerate(by)}


def answer_table(
    columns: Mapping[str, Sequence[Any]],
    estimate: Any,
    std_error: Any,
    low: Any,
    high: Any,
    source: Sequence[str] | str,
    subject: str,
) -> pd.DataFrame:
    """Return a pandas table of answers; ``attrs["words"]`` explains each source and warns of misuse."""
    import pandas as pd

    rows = len(np.atleast_1d(np.asarray(estimate)))
    figures = {
        name: np.broadcast_to(np.asarray(value, dtype=np.float64), rows)
        for name, value in zip(FIGURES[:4], (estimate, std_error, low, high), strict=True)
    }
    sources = [source] * rows if isinstance(source, str) else list(source)
    table = pd.DataFrame({**columns, **figures, "source": sources})
    table.attrs["about"] = subject
    table.attrs["words"] = [*(SOURCE_MEANINGS[s] for s in dict.fromkeys(sources)), NOT_A_SAMPLE]
    return table


def build_answer_chart(answers: pd.DataFrame) -> dict[str, Any]:
    """Return a bar an answer with its interval, coloured by source, as Vega-Lite.

    Raises RequestError for no answers, or for more than MOST_BARS.
    """
    import altair as alt  # here: it loads slowly

    if not 1 <= len(answers) <= MOST_BARS:
        raise RequestError(
            f"{len(answers):,} answers do not fit a picture of 1 to {MOST_BARS}", "Ask for fewer levels", "query.plot"
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
