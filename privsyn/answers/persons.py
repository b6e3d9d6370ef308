"""Questions about whole persons, such as how many ever had, or always have, a row that a condition holds for.

A `workload` question about persons adds a figure to each person's record, which is counted like any other attribute.
For other statements there are only counts of one drawn row a person, and of all rows column by column.  A person whose
drawn row fulfils a condition ever fulfils it, and no more persons do than there are such rows.  So the answer lies
between noisy counts; the synthetic persons give the estimate within these bounds.  The same holds for households.

Transitions of linked rows, from the released counts of pairs of rows: shares, with intervals for the noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.answers.answer_table import answer_table, name_label
from privsyn.answers.cells import ColumnCells, state_rule
from privsyn.answers.conditions import AtLevel, Condition, Parsed
from privsyn.answers.counted import (
    answer_counts,
    answer_in_groups,
    answer_shares,
    build_answer_table,
    list_levels_within,
)
from privsyn.answers.question import Question, compute_normal_factor
from privsyn.answers.released_counts import ReleasedCounts, describe_kept_rows, describe_without_rows
from privsyn.base.errors import RequestError
from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.panels import name_all_rows
from privsyn.data_contracts.question_language import EXAMPLE, OF_TRUTH, Summary, parse_summary
from privsyn.data_contracts.rule_language import drop_table_names
from privsyn.engine.step import release_steps
from privsyn.tasks.codecs.codec import Codec
from privsyn.tasks.panels.transitions import TransitionCodes, build_transition_codes

if TYPE_CHECKING:
    import pandas as pd


def answer_persons(
    released: ReleasedCounts, text: str, by: Sequence[str], level: float, *, share: bool
) -> pd.DataFrame:
    """Return the number of persons that satisfy a statement, or their share, in groups by constant columns.

    Raises RequestError for a release without linked rows, and for a text that is not about a person's rows together.
    Also for a column to group by that is not constant, and for a statement that no count bounds.
    """
    text = drop_table_names(text, released.tables)
    summary = _read_statement(released, text, by)
    whom = "which" if " " in released.record_unit else "whom"
    subject = f"{'share' if share else 'number'} of {released.record_units} for {whom} {text} holds"
    event = find_event(released, summary)
    if event is not None:
        return _answer_measured(released, event, by, level, subject, share=share)
    # tables below parent rows have no counts of all rows
    if summary.function not in OF_TRUTH or released.request.has_parent_rows:
        raise RequestError(
            f"not known: {summary.name} of a {released.record_unit} was not measured",
            "Ask about statements in the release's `workload`, or add this one to the next release's `workload`",
            "query.where",
        )
    return _answer_by_bounds(released, summary, by, level, subject, share=share)


def _read_statement(released: ReleasedCounts, text: str, by: Sequence[str]) -> Summary:
    """Return the statement about a person's rows in ``text``.  Raises RequestError as :func:`answer_persons`."""
    summary = read_summary(text)
    panel = released.request.spec.panel
    if panel is None:
        raise RequestError(
            "the rows of this release are not linked, so nothing is known about a person's rows together",
            "Ask a release whose spec has `order`, or ask about rows",
            "query.where",
        )
    if summary is None:
        raise RequestError(f"{text!r} is not a statement about a person's rows", f"Write {EXAMPLE}", "query.where")
    changing = next((name for name in by if name not in panel.constant), None)
    if changing is not None:
        raise RequestError(
            f"{changing!r} may differ between rows of one {released.record_unit}, so it cannot group them",
            f"Group by constant columns ({', '.join(panel.constant) or 'this release has none'})",
            "query.columns",
        )
    return summary


def _answer_measured(
    released: ReleasedCounts, event: AtLevel, by: Sequence[str], level: float, subject: str, *, share: bool
) -> pd.DataFrame:
    if share:
        question = Question.of(released, by, None, event=event)
        estimates = answer_shares(question, event, level)
    else:
        question = Question.of(released, by, event)
        estimates = answer_counts(question, level)
    table = build_answer_table(question, estimates, subject)
    kept_rows_words = describe_kept_rows(released)  # figures cover all kept rows, not one drawn row
    words = [word for word in table.attrs["words"] if word not in kept_rows_words]
    table.attrs["words"] = [*words, describe_kept(released)]
    return table


def _answer_by_bounds(
    released: ReleasedCounts, summary: Summary, by: Sequence[str], level: float, subject: str, *, share: bool
) -> pd.DataFrame:
    """Return the estimate and bounds from counts of drawn rows and of all rows (see the module's header)."""
    condition, always = state_rule(released, summary.of), summary.function == "always"
    end_level = 1 - (1 - level) / 2  # an answer's ends follow from up to three intervals
    answer = partial(answer_counts, level=end_level)
    number, drawn = (answer_in_groups(released, tuple(by), where, "", answer) for where in (None, summary.of))
    labels = [name_label(name) for name in by]
    drawn_bounds = drawn[[*labels, "low", "high"]].rename(columns={"low": "low_drawn", "high": "high_drawn"})
    merged = number.merge(drawn_bounds, how="left", on=labels) if labels else number.join(drawn_bounds)
    # a drawn row that fulfils it proves that its person ever has one; persons with such a row are at most such rows
    low, high = (merged[f"{end}_drawn"].fillna(0.0).to_numpy() for end in ("low", "high"))
    rows = _bound_rows(released, condition, end_level, always=always)
    least, most = merged["low"].to_numpy(), merged["high"].to_numpy()
    if always:  # at least all but the persons with a row that breaks it, at most those whose drawn row fulfils it
        low = np.maximum(least - rows, 0.0)
    else:
        high = np.full(len(merged), rows)
    low, high = np.minimum(low, most), np.clip(high, low, most)
    sources = np.where((low > 0) | (high < most), "bounded", "not known").tolist()
    groups = list(merged[labels].itertuples(index=False, name=None))
    shares = _share_made(released, condition, by, groups, always=always)
    estimate = np.clip(shares * np.maximum(merged["estimate"].to_numpy(), 0.0), low, high)
    if share:
        persons = np.maximum(merged["estimate"].to_numpy(), 1.0)
        low, high = low / np.maximum(most, 1.0), np.minimum(high / np.maximum(least, 1.0), 1.0)
        estimate = np.clip(estimate / persons, low, high)
    columns = {name: merged[name].tolist() for name in labels}
    table = answer_table(columns, estimate, np.nan, low, high, sources, subject)
    table.attrs["words"].append(describe_kept(released))
    return table


def read_summary(text: str) -> Summary | None:
    """Parse a statement about a person; None if the text is not one.  Raises RequestError if it is malformed."""
    try:
        return parse_summary(text)
    except FieldError as error:
        raise RequestError(error.problem, error.cure, "query.where") from None


def describe_kept(released: ReleasedCounts) -> str:
    """Return the sentence on the rows that an answer about persons covers."""
    most, without = released.request.spec.unit.records, describe_without_rows(released)
    drawn = "; one row of each person, or household, is counted" if " " in released.record_unit else ""
    return f"It is about the at most {most} rows of each {released.record_unit} that were kept{drawn}.{without}"


def find_event(released: ReleasedCounts, summary: Summary) -> AtLevel | None:
    """Return the statement as a condition on a measured figure of persons; None if no figure decides it."""
    types, most = released.language.types, released.request.spec.unit.records
    try:
        node = summary.read(types)
    except FieldError as error:
        raise RequestError(error.problem, error.cure, "query.where") from None
    for codec in released.encoding.summaries:
        if (codec.measured.about.function, codec.node) == (summary.function, node):
            codes = summary.find_codes(codec.measured.cuts, most)
            return None if codes is None else AtLevel(codec, np.flatnonzero(codes))
    return None


def _bound_rows(released: ReleasedCounts, condition: Condition, level: float, *, always: bool) -> float:
    """Return the most rows that fulfil a condition, or break it (``always``); infinite if unknown."""
    if len(condition.columns) != 1 or "measure_rows" not in released.noisy_files:
        return float("inf")
    (a,) = condition.columns
    if not _is_decided_by_ends(released, a, condition):
        return float("inf")
    recode, fractions = released.recode[a], ColumnCells(released, (a,)).fractions(condition)
    fine = fractions < 1 if always else fractions > 0
    if not recode.kept[fine].all():  # rare values have no coarse code
        return float("inf")
    counts, sigma = released.find_noisy("measure_rows", name_all_rows(a))
    codes = np.unique(recode.coarse[fine])
    return max(float(counts[codes].sum()), 0.0) + compute_normal_factor(level) * sigma * float(np.sqrt(len(codes)))


def _is_decided_by_ends(released: ReleasedCounts, attribute: str, condition: Condition) -> bool:
    """Return whether a condition's truth at both ends of each code decides whether some or all values fulfil it."""
    reach = released.reach.get(attribute)
    if reach is None or not (reach[0] < reach[1]).any():
        return True
    if not isinstance(condition, Parsed) or condition.node.op not in ("<", "<=", ">", ">="):
        return False
    return sorted(arg.op for arg in condition.node.args) == ["column", "constant"]


def _share_made(
    released: ReleasedCounts,
    condition: Condition,
    by: Sequence[str],
    labels: Sequence[tuple[str, ...]],
    *,
    always: bool,
) -> np.ndarray:
    """Return the share of synthetic persons in each group with a fulfilling row, or with only such; 0 for no person."""
    table, first = released.persons
    holds, starts = condition.holds({name: table[name] for name in table.column_names}), np.flatnonzero(first)
    true = np.logical_and.reduceat(holds, starts) if always else np.logical_or.reduceat(holds, starts)
    of_each = table.take(pa.array(starts))
    values = {name: of_each[name] for name in of_each.column_names}
    events = (list_levels_within(released, name, (), None) for name in by)
    levels = [[(label, event.holds(values)) for label, event in of_column] for of_column in events]
    groups = {}
    for combined in product(*levels):
        inside = np.logical_and.reduce([mask for _, mask in combined]) if combined else np.ones(len(true), bool)
        groups[tuple(label for label, _ in combined)] = float(true[inside].mean()) if inside.any() else 0.0
    return np.array([groups.get(tuple(label), 0.0) for label in labels])


Floats = NDArray[np.float64]

LEAST = 3.0
"""Standard errors that the number of pairs from a code must reach, so that their shares are known."""


class Transition(NamedTuple):
    """The share of a second code among the pairs with a first code.

    ``kind``: the kind of pair of household members; empty for persons.
    """

    kind: str
    first: str
    second: str
    estimate: float
    error: float
    low: float
    high: float
    source: str


def answer_transitions(released: ReleasedCounts, column: str, level: float) -> list[Transition]:
    """Return the transitions of a column.  Raises RequestError if none were measured."""
    plan, spec = released.encoding, released.request.spec
    if spec.panel is None:
        raise RequestError(
            "the rows of this release are not linked, so no row follows another",
            "Ask a release whose spec has `order`",
            "query.columns",
        )
    measured = [name for name in plan.following if name in spec.columns]
    if column not in measured:
        raise RequestError(
            f"no transitions of {column!r} were measured: it is constant, follows from the order, or is not a column",
            f"Name one of {', '.join(measured)}",
            "query.columns",
        )
    step = next(s for s in release_steps(released.steps) if s.name == "measure_transitions")
    codes = build_transition_codes(plan, released.recode, step.rho(released.request))[column]
    counts, sigma = released.find_noisy("measure_transitions", column)
    names = label_codes(plan.get_codec(column), codes)
    if not spec.panel.household:
        table = counts.reshape(codes.size, codes.size + 1)
        joint = table[:, :-1] + np.diag(table[:, -1])
        return list(_iterate_shares("", names, joint, sigma * np.sqrt(1 + np.eye(codes.size)), level))
    transitions: list[Transition] = []
    roles = plan.get_order()[1].labels()
    for kind, table in enumerate(counts.reshape(-1, codes.size, codes.size)):
        same, role = bool(kind % 2), roles[kind // 2]
        if (kind // 2 in spec.panel.once and same) or (kind < 2 and not same):
            continue  # no household can have such a pair
        words = f"{role} after {role}" if same else f"first {role}, after another role"
        transitions += _iterate_shares(words, names, table, np.full(table.shape, sigma), level)
    return transitions


def _iterate_shares(kind: str, names: list[str], counts: Floats, sigma: Floats, level: float) -> Iterator[Transition]:
    z = compute_normal_factor(level)
    for first, row, noise in zip(names, counts, sigma, strict=False):
        total, spread = float(row.sum()), float(np.sqrt((noise**2).sum()))
        for second, count, sigma_of_pair in zip(names, row, noise, strict=True):
            if total < LEAST * spread:
                yield Transition(kind, first, second, float("nan"), float("nan"), 0.0, 1.0, "not known")
                continue
            share = count / total
            variance = ((1 - share) * sigma_of_pair) ** 2 + share**2 * (spread**2 - sigma_of_pair**2)
            error = float(np.sqrt(variance)) / total
            low, high = max(share - z * error, 0.0), min(share + z * error, 1.0)
            yield Transition(kind, first, second, float(np.clip(share, 0.0, 1.0)), error, low, high, "measured")


def label_codes(codec: Codec, codes: TransitionCodes) -> list[str]:
    """Return a label of each code: its only value, the first and last of neighbouring values, or all its values."""
    labels, has_code = codec.labels(), codes.recode.kept
    names = []
    for code in range(codes.size):
        members = np.flatnonzero(has_code & (codes.recode.coarse == code))
        if code < codes.ordered and len(members) > 1:
            names.append(f"{labels[members[0]]} to {labels[members[-1]]}")
        else:
            names.append(", ".join(labels[m] for m in members))
    return names
