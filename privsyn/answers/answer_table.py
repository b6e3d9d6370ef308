"""Answers as tidy tables: one row an answer, with its estimate, error, interval and source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

FIGURES = ("estimate", "std_error", "low", "high", "source")

_OWN = {*FIGURES, "probability"}
"""Names that an answer's own columns have."""

SOURCE_MEANINGS = {
    "measured": "measured: noisy counts of just these columns, combined with all others that bear on them; the "
    "interval is that of the noise. Do not read single counts below about three standard errors as people.",
    "implied": "implied: from noisy counts, where values are taken to lie evenly inside the cells that the condition "
    "or the mean cuts; the interval allows for any other place. Do not ask for finer steps than the release's bins.",
    "model": "model: these columns were not measured together; the estimate is that of the synthetic rows, and the "
    "interval holds whatever the released counts and strengths of relation allow. Do not take the estimate for a "
    "measurement, and no standard error is given.",
    "bounded": "bounded: nothing was counted of a person's rows together but one row of each; the interval follows "
    "from these counts and from those of all rows, and the estimate is that of the synthetic persons. It is wide, and "
    "holds at least as often as it says.",
    "simulated": "simulated: the model's own rows, measured again with noise like the receipts' and made anew many "
    "times; every pair of these columns was measured. Relations of three and more columns beyond their pairs are not "
    "in it.",
    "not known": "not known: nothing that was released bounds it. The estimate is that of the synthetic rows; do not "
    "build on it.",
}
"""Source -> what it means, and what not to do with it."""

NOT_A_SAMPLE = (
    "The intervals are about the private table that was released, not about the population that it was drawn from."
)

POPULATION_NOTE = (
    "The intervals are about the population, as if the private table were a random sample of it: wider by that error."
)


def name_label(column: str) -> str:
    """Return what the labels of a released column are called: its name, unless an answer has figures of this name."""
    return f"{column} (column)" if column in _OWN else column


def collect_labels(by: Sequence[str], labels: Sequence[tuple[str, ...]]) -> Mapping[str, list[str]]:
    """Return the columns of labels: ``labels`` has one tuple an answer, with one label for each column of ``by``."""
    return {name_label(column): [label[i] for label in labels] for i, column in enumerate(by)}


def answer_table(
    columns: Mapping[str, Sequence[Any]],
    estimate: Any,
    std_error: Any,
    low: Any,
    high: Any,
    source: Sequence[str] | str,
    about: str,
) -> pd.DataFrame:
    """Return a pandas table of answers; ``attrs["words"]`` says what each source means and what not to do with it."""
    import pandas as pd

    rows = len(np.atleast_1d(np.asarray(estimate)))
    figures = {
        name: np.broadcast_to(np.asarray(value, dtype=np.float64), rows)
        for name, value in zip(FIGURES[:4], (estimate, std_error, low, high), strict=True)
    }
    sources = [source] * rows if isinstance(source, str) else list(source)
    table = pd.DataFrame({**columns, **figures, "source": sources})
    table.attrs["about"] = about
    table.attrs["words"] = [*(SOURCE_MEANINGS[s] for s in dict.fromkeys(sources)), NOT_A_SAMPLE]
    return table
