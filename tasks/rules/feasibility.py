"""Feasibility of rules: a search for a row that keeps all rules, with the public spec alone.

Rules without such a row are refused before a release.  The search only evaluates conditions.  A solver of integer
constraints would need its own version of every operation of the rules' language: products, dates, look-ups and nulls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from privsyn.data_contracts.frozen_model import FieldError
from privsyn.tasks.codecs.codec import Codec
from privsyn.tasks.codecs.encoding_plan import EncodingPlan
from privsyn.tasks.rules.compiled_rules import CompiledRules, ForbiddenCondition

SAMPLE = 2_048
"""Number of rows in each round; they begin at random."""

ROUNDS = 150
"""Rounds of the search; each changes the rows that break the fewest rules."""

MAX_CONTRADICTIONS = 20
"""Largest number of earlier rules that an infeasible rule is compared with, to name the one that it contradicts."""

_KEPT_ROWS = 128  # best rows of a round, which the next round begins with


def find_valid_row(
    plan: EncodingPlan, fixed_codes: Mapping[str, int] = MappingProxyType({})
) -> dict[str, pa.Array] | None:
    """Return one row, of the columns that rules need, that keeps all rules, or None if none was found.

    A random search with a fixed seed: the same plan gives the same row.  ``fixed_codes``: fine codes that the row must
    have.
    """
    rules = plan.rules
    if rules is None:
        return None
    rng = np.random.default_rng(0x17)
    codecs = _list_ruled_codecs(plan, rules)
    computed = tuple(c for c in plan.computed if c.attribute in rules.order)
    part = replace(plan, codecs=codecs, computed=computed, unmeasured=())
    codes = {c.attribute: rng.integers(c.size, size=SAMPLE) for c in codecs}
    fixed = {a: np.full(SAMPLE, code) for a, code in fixed_codes.items()}
    for _ in range(ROUNDS):
        codes |= fixed
        columns = part.decode(codes, rng)
        wrong = rules.find_broken_rows(columns).sum(axis=0)
        best = int(wrong.argmin())
        if wrong[best] == 0:
            return {name: array.slice(best, 1) for name, array in columns.items()}
        best_rows = np.argsort(wrong, kind="stable")[:_KEPT_ROWS]
        codes = {a: np.resize(c[best_rows], SAMPLE) for a, c in codes.items()}
        for c in codecs:  # the best rows stay as they are
            changed = np.flatnonzero(rng.random(SAMPLE) < 1.0 / len(codecs))
            changed = changed[changed >= _KEPT_ROWS // 2]
            codes[c.attribute][changed] = rng.integers(c.size, size=changed.size)
    return None


def _list_ruled_codecs(plan: EncodingPlan, rules: CompiledRules) -> tuple[Codec, ...]:
    """Return the codecs of the columns that rules need, and the helpers that decoding them reads."""
    codecs = [c for c in plan.codecs if not rules.ruled_columns.isdisjoint(c.ranges())]
    helpers = {name for c in codecs for name in c.helpers}
    return tuple(c for c in plan.codecs if c in codecs or c.attribute in helpers)


def check_feasible(plan: EncodingPlan) -> None:
    """Raise FieldError, with the rule's place, if no row was found that keeps all rules."""
    rules = plan.rules
    if rules is None or not rules.conditions or find_valid_row(plan) is not None:
        return
    low, high = 0, len(rules.conditions) - 1  # bisect for the shortest infeasible prefix of the conditions
    while low < high:
        middle = (low + high) // 2
        if find_valid_row(_restrict_to(plan, rules, rules.conditions[: middle + 1])) is None:
            high = middle
        else:
            low = middle + 1
    condition = rules.conditions[low]
    place = ("rules", condition.rule)
    if find_valid_row(_restrict_to(plan, rules, (condition,))) is None:
        raise FieldError(
            f"no row was found that keeps it: {condition.words}",
            "Write a rule that rows can keep; derive a column that must equal an expression",
            place,
        )
    others = [c for c in rules.conditions[:low] if c.rule != condition.rule and set(c.needs) & set(condition.needs)]
    for before in others[:MAX_CONTRADICTIONS]:
        if find_valid_row(_restrict_to(plan, rules, (before, condition))) is None:
            raise FieldError(
                f"no row was found that keeps both it and rule {before.rule + 1} ({before.words})",
                "Drop one of the two, or widen a domain",
                place,
            )
    raise FieldError("no row was found that keeps it and the rules before it", "Drop one, or widen a domain", place)


def _restrict_to(plan: EncodingPlan, rules: CompiledRules, conditions: tuple[ForbiddenCondition, ...]) -> EncodingPlan:
    return replace(plan, rules=replace(rules, conditions=conditions))
