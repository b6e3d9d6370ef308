"""Rules from the words of a public dictionary: who is asked a question, and the value of everybody else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.rule_language import Type, parse_condition
from privsyn.specs.facts import Facts

_TYPES: dict[str, Type] = {
    "integer": "number",
    "number": "number",
    "boolean": "truth",
    "datetime": "moment",
    "date": "moment",
}
_BELOW = re.compile(r"(?:less than|under|younger than|below)\s+(\d+)", re.IGNORECASE)
_FROM = re.compile(
    r"(\d+)\s*(?:\+|(?:years?\s+)?(?:of age\s+|old\s+)?(?:and|or)\s+(?:over|older|more|above))", re.IGNORECASE
)
_AGE = re.compile(r"(a_)?age(p|_years)?", re.IGNORECASE)
_NOT_ASKED = re.compile(r"\W*(not in universe|niu|n/a|not applicable|inapplicable|iap)\b", re.IGNORECASE)


class ProposedRule(NamedTuple):
    """A condition that no row should meet, its column, and the dictionary's words for it."""

    never: str
    column: str
    words: str


def propose_rules(columns: Mapping[str, Facts]) -> list[ProposedRule]:
    """Return rules by the universes of ``columns``: outside its universe, a column is "not in universe" or null.

    A universe is a condition in the language of rules, or words about a smallest age, which refer to the only integer
    column named age.  A column gets no rule if its universe cannot be read, or if it has no value for people who are
    not asked.
    """
    types = {name: kind for name, facts in columns.items() if (kind := _get_type(facts)) is not None}
    ages = [n for n, f in columns.items() if f.kind == "integer" and _AGE.fullmatch(n)]
    proposals = []
    for name, facts in columns.items():
        universe = _describe_universe(facts.universe, types, ages)
        if name in types and universe and name not in ages:
            proposals += [
                ProposedRule(rule, name, facts.universe) for rule in _propose_for_column(name, facts, universe)
            ]
    return [p for p in proposals if _is_readable(p.never, types)]


def _propose_for_column(name: str, facts: Facts, universe: str) -> Iterator[str]:
    column = f"`{name}`"
    apart = _explain_not_asked(facts)
    if apart is not None:
        yield f"not ({universe}) and {column} != {apart!r}"
        yield f"({universe}) and {column} == {apart!r}"
    elif facts.nullable:
        yield f"not ({universe}) and {column} is not null"


def _explain_not_asked(facts: Facts) -> str | int | float | None:
    """Return the listed value for people who are not asked; None if there is none."""
    labels = facts.labels or [""] * len(facts.values or ())
    for value, label in zip(facts.values or (), labels, strict=False):
        if isinstance(value, str | int | float) and (_NOT_ASKED.match(str(value)) or _NOT_ASKED.match(label)):
            return value
    return None


def _describe_universe(words: str, types: Mapping[str, Type], ages: list[str]) -> str:
    """Return a universe as a condition; empty if it cannot be read."""
    if words and _is_readable(words, types):
        return words
    limit = _BELOW.search(words) or _FROM.search(words)
    return f"`{ages[0]}` >= {limit[1]}" if limit is not None and len(ages) == 1 else ""


def _is_readable(condition: str, types: Mapping[str, Type]) -> bool:
    try:
        return bool(parse_condition(condition, types).columns)
    except FieldError:
        return False


def _get_type(facts: Facts) -> Type | None:
    if facts.kind == "categorical":
        return None if not facts.values else "text" if isinstance(facts.values[0], str) else "number"
    return _TYPES.get(facts.kind or "")
