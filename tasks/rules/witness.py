"""Look for a row that breaks no rule, by the public spec alone: rules that leave none are refused before a release."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from privsyn.data_contracts.field_error import FieldError
from privsyn.tasks.codecs.encoding_plan import EncodingPlan
from privsyn.tasks.rules.book import Condition, RuleBook

SAMPLE = 2_048
"""Random rows to begin with."""

ROUNDS = 150
"""How often the rows that break fewest rules are changed."""

_BEST = 128  # of them


def find_row(plan: EncodingPlan) -> dict[str, pa.Array] | None:
    """One row of every column that breaks no rule of ``plan``; None if none was found.  The same plan, the same row."""
    rules = plan.rules
    if rules is None:
        return None
    rng = np.random.default_rng(0x17)
    attributes = {name: c.attribute for c in plan.codecs for name in c.ranges()}
    spoken = sorted({attributes[n] for c in rules.conditions for n in c.needs})
    codes = {c.attribute: rng.integers(c.size, size=SAMPLE) for c in plan.codecs}
    sizes = {c.attribute: c.size for c in plan.codecs}
    for _ in range(ROUNDS):
        columns = plan.decode(codes, rng)
        wrong = rules.broken(columns).sum(axis=0)
        best = int(wrong.argmin())
        if wrong[best] == 0:
            return {name: array.slice(best, 1) for name, array in columns.items()}
        kept = np.argsort(wrong, kind="stable")[:_BEST]
        codes = {a: np.resize(c[kept], SAMPLE) for a, c in codes.items()}
        for a in spoken:  # the first ones stay as they are
            changed = np.flatnonzero(rng.random(SAMPLE) < 1.0 / len(spoken))
            changed = changed[changed >= _BEST // 2]
            codes[a][changed] = rng.integers(sizes[a], size=changed.size)
    return None


def check_possible(plan: EncodingPlan) -> None:
    """Raises FieldError, with the rule's place, if no row was found that breaks no rule."""
    rules = plan.rules
    if rules is None or not rules.conditions or find_row(plan) is not None:
        return
    for condition in rules.conditions:
        if find_row(_only(plan, rules, (condition,))) is None:
            raise FieldError(
                f"no row was found that does not meet it: {condition.words}",
                "Write a rule that rows can keep; a column that equals an expression is better derived",
                ("rules", condition.rule),
            )
    for i, condition in enumerate(rules.conditions):
        for before in rules.conditions[:i]:
            if before.rule != condition.rule and find_row(_only(plan, rules, (before, condition))) is None:
                raise _contradiction(condition, before)
    raise FieldError("together they leave no row that was found", "Drop one, or widen a domain", ("rules",))


def _only(plan: EncodingPlan, rules: RuleBook, conditions: tuple[Condition, ...]) -> EncodingPlan:
    return replace(plan, rules=replace(rules, conditions=conditions))


def _contradiction(condition: Condition, before: Condition) -> FieldError:
    return FieldError(
        f"leaves no row beside rule {before.rule + 1} ({before.words}) that was found",
        "Drop one of the two, or widen a domain",
        ("rules", condition.rule),
    )
