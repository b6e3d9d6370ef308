"""Questions about whole persons: how many ever had, or always have, a row that a condition holds for.

What is counted of a person's rows together is one row a person, and all rows column by column.  A person whose drawn
row fulfils a condition ever does, so these are a part of those; and no more persons ever do than there are such rows.
So the answer lies between noisy counts, and where it lies there the synthetic persons say.  Households likewise.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from privsyn.answers.answer_table import answer_table, name_label
from privsyn.answers.best_linear import compute_normal_factor
from privsyn.answers.cell_weights import Cells
from privsyn.answers.computed import state_rule
from privsyn.answers.conditions import Condition, Parsed
from privsyn.answers.released_counts import ReleasedCounts
from privsyn.base.errors import RequestError
from privsyn.data_contracts.panels import name_all_rows

if TYPE_CHECKING:
    import pandas as pd

    from privsyn.answers.questions import Questions

_SUMMARY = re.compile(r"(ever|any|always)\s*\((.*)\)", re.DOTALL)


class Summary(NamedTuple):
    """A statement about a person: that every row fulfils ``condition``, or that one does."""

    always: bool
    condition: str


def parse_summary(text: str) -> Summary | None:
    """Return the summary in ``ever(..)``, ``any(..)`` or ``always(..)``; None where the text is none."""
    found = _SUMMARY.fullmatch(text.strip())
    return Summary(found[1] == "always", found[2].strip()) if found else None


def answer_persons(release: Questions, what: str, by: Sequence[str], level: float, *, share: bool) -> pd.DataFrame:
    """Return of how many persons a summary is true, or of what share of them, in groups by constant columns."""
    released, summary = release._counts, parse_summary(what)
    panel = released.request.spec.panel
    if released.request.given:
        raise RequestError(
            f"what a person's rows of {released.branch} have in common is not known: one of each person was counted",
            "Ask for counts, shares or means of these rows",
            "query.where",
        )
    if panel is None:
        raise RequestError(
            "the rows of this release are not linked, so nothing is known of a person's rows together",
            "Ask a release whose spec has `order`, or ask about rows",
            "query.where",
        )
    if summary is None:
        raise RequestError(
            f"{what!r} says nothing of a person's rows together",
            "Write `ever(CONDITION)` or `always(CONDITION)`, such as `ever(job == 'none')`",
            "query.where",
        )
    changing = next((name for name in by if name not in panel.constant), None)
    if changing is not None:
        raise RequestError(
            f"{changing!r} may differ between rows of one {released.request.spec.unit.one}: it groups none",
            f"Group by columns that are constant ({', '.join(panel.constant) or 'this release has none'})",
            "query.columns",
        )
    condition = state_rule(released, summary.condition)
    part = 1 - (1 - level) / 2  # an answer's ends follow from up to three intervals
    number = release.count(*by, level=part)
    drawn = release.count(*by, where=summary.condition, level=part)
    labels = [name_label(name) for name in by]
    found = drawn.rename(columns={end: f"{end}_drawn" for end in ("low", "high")})[[*labels, "low_drawn", "high_drawn"]]
    both = number.merge(found, how="left", on=labels) if labels else number.join(found)
    # whose drawn row fulfils it ever has such a row, and no more persons have one than there are such rows
    low, high = (both[f"{end}_drawn"].fillna(0.0).to_numpy() for end in ("low", "high"))
    rows = _bound_rows(released, condition, part, always=summary.always)
    least, most = both["low"].to_numpy(), both["high"].to_numpy()
    if summary.always:  # all but those with a row that breaks it, and no more than fulfil it in the drawn row
        low = np.maximum(least - rows, 0.0)
    else:
        high = np.full(len(both), rows)
    low, high = np.minimum(low, most), np.clip(high, low, most)
    known = (low > 0) | (high < most)
    shares = _share_made(release, condition, summary, by, list(both[labels].itertuples(index=False, name=None)))
    estimate = np.clip(shares * np.maximum(both["estimate"].to_numpy(), 0.0), low, high)
    if share:
        whole = np.maximum(both["estimate"].to_numpy(), 1.0)
        low, high = low / np.maximum(most, 1.0), np.minimum(high / np.maximum(least, 1.0), 1.0)
        estimate = np.clip(estimate / whole, low, high)
    sources = np.where(known, "bounded", "not known").tolist()
    about = f"{'share' if share else 'number'} of {released.request.spec.unit.one}s of whom {what} holds"
    columns = {name: both[name].tolist() for name in labels}
    table = answer_table(columns, estimate, np.nan, low, high, sources, about)
    unit = released.request.spec.unit
    table.attrs["words"].append(f"It is about the at most {unit.records} rows of each {unit.one} that were kept.")
    return table


def _bound_rows(released: ReleasedCounts, condition: Condition, level: float, *, always: bool) -> float:
    """Return the most rows that fulfil a condition, or for ``always`` that do not; infinite where that is not known."""
    if len(condition.columns) != 1 or "measure_rows" not in released.noisy_files:
        return float("inf")
    (a,) = condition.columns
    if not _is_decided_by_ends(released, a, condition):
        return float("inf")
    recode, fractions = released.recode[a], Cells(released, (a,)).fractions(condition)
    fine = fractions < 1 if always else fractions > 0
    if not recode.kept[fine].all():  # rows of values that are few are in no coarse code
        return float("inf")
    counts, sigma = released.find_noisy("measure_rows", name_all_rows(a))
    codes = np.unique(recode.coarse[fine])
    return max(float(counts[codes].sum()), 0.0) + compute_normal_factor(level) * sigma * float(np.sqrt(len(codes)))


def _is_decided_by_ends(released: ReleasedCounts, attribute: str, condition: Condition) -> bool:
    """Return whether what holds at both ends of a code, or at its one value, holds of some value in it or of all."""
    reach = released.reach.get(attribute)
    if reach is None or not (reach[0] < reach[1]).any():
        return True
    if not isinstance(condition, Parsed) or condition.node.op not in ("<", "<=", ">", ">="):
        return False
    return sorted(arg.op for arg in condition.node.args) == ["column", "constant"]


def _share_made(
    release: Questions, condition: Condition, summary: Summary, by: Sequence[str], labels: Sequence[tuple[str, ...]]
) -> np.ndarray:
    """Return of what share of the synthetic persons of each group the summary is true; 0 of none."""
    released = release._counts
    panel = released.request.spec.panel
    assert panel is not None  # noqa: S101 - the caller has asked
    table = released.rows
    starts = np.flatnonzero(np.diff(table[panel.person].to_numpy(), prepend=-1))
    holds = condition.holds({name: table[name] for name in table.column_names})
    true = np.logical_and.reduceat(holds, starts) if summary.always else np.logical_or.reduceat(holds, starts)
    first = table.take(pa.array(starts))
    values = {name: first[name] for name in first.column_names}
    levels = [[(label, event.holds(values)) for label, event in release._levels_of(name, (), None)] for name in by]
    groups = {}
    for combined in product(*levels):
        inside = np.logical_and.reduce([mask for _, mask in combined]) if combined else np.ones(len(true), bool)
        groups[tuple(label for label, _ in combined)] = float(true[inside].mean()) if inside.any() else 0.0
    return np.array([groups.get(tuple(label), 0.0) for label in labels])
