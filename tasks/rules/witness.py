"""Look for a row that breaks no rule, by the public spec alone: rules that leave none are refused before a release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from privsyn.data_contracts.field_error import FieldError
from privsyn.tasks.codecs.codec import Codec
from privsyn.tasks.codecs.encoding_plan import EncodingPlan
from privsyn.tasks.rules.book import Condition, RuleBook

SAMPLE = 2_048
"""Random rows to begin with."""

ROUNDS = 150
"""How often the rows that break fewest rules are changed."""

MOST_PAIRS = 20
"""Earlier rules at most that a rule is held against, to name the one that it contradicts."""

_BEST = 128  # of the rows


def find_row(plan: EncodingPlan, given: Mapping[str, int] = MappingProxyType({})) -> dict[str, pa.Array] | None:
    """Return one row of the columns that rules speak of, which breaks none; None if none was found.

    The same plan gives the same row.

    ``given``: the fine codes that the row has, of attributes that rules speak of.
    """
    rules = plan.rules
    if rules is None:
        return None
    rng = np.random.default_rng(0x17)
    codecs = _list_ruled_columns(plan, rules)
    computed = tuple(c for c in plan.computed if c.attribute in rules.order)
    part = replace(plan, codecs=codecs, computed=computed, unmeasured=())
    codes = {c.attribute: rng.integers(c.size, size=SAMPLE) for c in codecs}
    fixed = {a: np.full(SAMPLE, code) for a, code in given.items()}
    for _ in range(ROUNDS):
        codes |= fixed
        columns = part.decode(codes, rng)
        wrong = rules.broken(columns).sum(axis=0)
        best = int(wrong.argmin())
        if wrong[best] == 0:
            return {name: array.slice(best, 1) for name, array in columns.items()}
        kept = np.argsort(wrong, kind="stable")[:_BEST]
        codes = {a: np.resize(c[kept], SAMPLE) for a, c in codes.items()}
        for c in codecs:  # the first ones stay as they are
            changed = np.flatnonzero(rng.random(SAMPLE) < 1.0 / len(codecs))
            changed = changed[changed >= _BEST // 2]
            codes[c.attribute][changed] = rng.integers(c.size, size=changed.size)
    return None


def _list_ruled_columns(plan: EncodingPlan, rules: RuleBook) -> tuple[Codec, ...]:
    """Return the codecs of the columns that rules need, and what decoding them reads."""
    codecs = [c for c in plan.codecs if not rules.spoken_of.isdisjoint(c.ranges())]
    helpers = {name for c in codecs for name in c.helpers}
    return tuple(c for c in plan.codecs if c in codecs or c.attribute in helpers)


def check_possible(plan: EncodingPlan) -> None:
    """Raise FieldError, with the rule's place, if no row was found that breaks no rule."""
    rules = plan.rules
    if rules is None or not rules.conditions or find_row(plan) is not None:
        return
    low, high = 0, len(rules.conditions) - 1  # the last condition of the shortest beginning that leaves no row
    while low < high:
        middle = (low + high) // 2
        if find_row(_restrict_to(plan, rules, rules.conditions[: middle + 1])) is None:
            high = middle
        else:
            low = middle + 1
    condition = rules.conditions[low]
    place = ("rules", condition.rule)
    if find_row(_restrict_to(plan, rules, (condition,))) is None:
        raise FieldError(
            f"no row was found that does not meet it: {condition.words}",
            "Write a rule that rows can keep; a column that equals an expression is better derived",
            place,
        )
    others = [c for c in rules.conditions[:low] if c.rule != condition.rule and set(c.needs) & set(condition.needs)]
    for before in others[:MOST_PAIRS]:
        if find_row(_restrict_to(plan, rules, (before, condition))) is None:
            raise FieldError(
                f"leaves no row beside rule {before.rule + 1} ({before.words}) that was found",
                "Drop one of the two, or widen a domain",
                place,
            )
    raise FieldError("leaves no row beside the rules before it that was found", "Drop one, or widen a domain", place)


def _restrict_to(plan: EncodingPlan, rules: RuleBook, conditions: tuple[Condition, ...]) -> EncodingPlan:
    return replace(plan, rules=replace(rules, conditions=conditions))
