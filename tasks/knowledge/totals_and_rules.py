"""Known totals beside rules: that rows can have both, by the public spec alone, before anything is spent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from privsyn.data_contracts.field_error import FieldError
from privsyn.data_contracts.totals import KnownTotal
from privsyn.tasks.codecs.encoding_plan import EncodingPlan
from privsyn.tasks.knowledge.totals import KnownTotals
from privsyn.tasks.rules.feasibility import find_valid_row


def list_held_by_rules(totals: KnownTotals | None, plan: EncodingPlan) -> tuple[str, ...]:
    """Return the attributes that rows have exactly and rules speak of: the repair of rows leaves them as they are."""
    if totals is None or plan.rules is None:
        return ()
    needed = {name for condition in plan.rules.conditions for name in condition.needs}
    return tuple(h.attribute for h in totals.held if h.attribute in needed)


def check_totals_possible(stated: Sequence[KnownTotal], totals: KnownTotals, plan: EncodingPlan) -> None:
    """Raise FieldError where rows were not found that have the totals and break no rule.

    Exact totals of several columns that rules speak of are refused, but those of one pair: whether rows can have them
    all is a puzzle of its own.
    """
    held = list_held_by_rules(totals, plan)
    if len(held) > 1 and not (len(held) == 2 and _is_exact_pair(stated, held)):
        raise FieldError(
            f"are exact for {' and '.join(map(repr, held))}, which rules speak of, too",
            "Write `hold: close` for all but one, or give one total of both columns",
            ("totals",),
        )
    for attributes, codes in _iterate_cells(totals, plan, held):
        if find_valid_row(plan, dict(zip(attributes, codes, strict=True))) is None:
            labels = plan.labels()
            named = " and ".join(f"{a} = {labels[a][code]}" for a, code in zip(attributes, codes, strict=True))
            raise FieldError(
                f"give rows to {named}, and no such row was found that breaks no rule",
                "Correct the totals, or the rules",
                ("totals",),
            )


def _is_exact_pair(stated: Sequence[KnownTotal], held: Sequence[str]) -> bool:
    return any(set(total.columns) == set(held) and total.hold == "exact" for total in stated)


def _iterate_cells(
    totals: KnownTotals, plan: EncodingPlan, held: Sequence[str]
) -> Iterator[tuple[tuple[str, ...], Sequence[int]]]:
    """Yield the attributes, and their codes, of which there has to be a row that breaks no rule."""
    if plan.rules is None:
        return
    needed = {name for condition in plan.rules.conditions for name in condition.needs}
    counts: Mapping[tuple[str, ...], np.ndarray] = {(a,): c for a, c in totals.one_way.items() if a in needed}
    if len(held) == 2:
        counts = {pair: c for pair, c in totals.pairs.items() if set(pair) == set(held)} | dict(counts)
    for attributes, table in counts.items():
        for codes in np.argwhere(table > 0):
            yield attributes, [int(code) for code in codes]
