"""Advice before a release: relations in the private rows that rules could keep.

All of it is PRIVATE: for the steward only, never for a log or a release.  Every relation is a function of the rows; it
may become a rule only if a public source states it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import pyarrow as pa

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.rules import list_computed_columns
from privsyn.data_contracts.spec_checks import list_named_columns
from privsyn.specs.advice import implications, numbers
from privsyn.specs.advice.columns import AdviceColumn, Finding, build_columns

LEAST_ROWS = 100

MOST_COLUMNS = 120
"""Largest number of columns searched, from the first: time grows with the square of their number."""

MOST_FINDINGS = 40


@dataclass(frozen=True)
class Advice:
    """PRIVATE: relations in the rows that the spec does not state.

    ``rows``: number of rows searched; ``more``: number of relations found but not listed.
    """

    rows: int = 0
    findings: tuple[Finding, ...] = field(default=(), repr=False)
    more: int = field(default=0, repr=False)

    def as_json(self) -> dict[str, Any]:
        """Return the advice, JSON-ready; PRIVATE."""
        findings = [finding.as_json() for finding in self.findings]
        return {"private": True, "rows": self.rows, "findings": findings, "more": self.more}


def advise(spec: ReleaseSpec, rows: Mapping[str, pa.Array], *, compares: bool = True) -> Advice:
    """PRIVATE: return relations that hold in all or nearly all ``rows`` and that no rule of ``spec`` states.

    ``rows``: the measured columns as a release counts them; ``compares``: whether the spec can compare its columns.
    """
    many = len(next(iter(rows.values()))) if rows else 0
    if many < LEAST_ROWS:
        return Advice(many)
    computed = set(list_computed_columns(spec.rules))
    columns = build_columns({n: c for n, c in spec.measured_columns.items() if n not in computed}, rows)
    findings = list(_Search(spec, columns[:MOST_COLUMNS], many, compares).run())
    return Advice(many, tuple(findings[:MOST_FINDINGS]), max(0, len(findings) - MOST_FINDINGS))


class _Search:
    """One search, which reports each relation once."""

    def __init__(self, spec: ReleaseSpec, columns: list[AdviceColumn], rows: int, compares: bool) -> None:
        self._spec, self._columns, self._rows, self._compares = spec, columns, rows, compares
        named = list_named_columns(spec, spec.released_columns, spec.row_words)
        self._ruled = [frozenset(names) for place, names in named if place[0] == "rules"]
        self._stated = {pair for names in self._ruled for pair in _pair_names(names)}
        self._sources: dict[str, set[str]] = {}

    def run(self) -> Iterator[Finding]:
        """Yield findings that compute a column, then findings that forbid rows."""
        columns = self._columns
        yield from self._take_computing(implications.find_parts(columns))
        yield from self._take_computing(implications.find_bands(columns))
        yield from self._take_relations(numbers.find_pairs(columns))
        yield from self._take_relations(numbers.find_durations(columns))
        measured = [c for c in columns if c.name not in self._sources]
        yield from self._take_relations(numbers.find_triples(measured))
        yield from self._find_lookups()
        for finding in implications.find_dummies(columns):
            if not self._is_stated(finding.columns) and not self._sources.keys() & {*finding.columns}:
                self._sources |= {name: set() for name in finding.columns}
                self._stated |= _pair_names(finding.columns)
                yield finding
        for low, high in numbers.find_orders(columns):
            if frozenset((low.name, high.name)) not in self._stated:
                yield numbers.describe_order(low, high)
        if self._compares:
            tied = {name for names in self._ruled for name in names if len(names) > 2} | {*self._sources}
            compared = {name for pair in (*self._spec.compare, *self._spec.together) for name in pair}
            yield from numbers.find_near_dates(columns, {*tied, *compared, *list_computed_columns(self._spec.rules)})
        conditions = implications.list_conditions(columns)
        exclusions = implications.find_exclusions(conditions, self._stated)
        yield from implications.describe_exclusions(exclusions, self._rows)

    def _find_lookups(self) -> Iterator[Finding]:
        pairs = implications.find_dependencies(self._columns)
        open_pairs = [(a, b) for a, b in pairs if frozenset((a.name, b.name)) not in self._stated]
        self._stated |= {frozenset((a.name, b.name)) for a, b in pairs}
        for first, followers, mutual in implications.reduce_dependencies(open_pairs):
            free = [c for c in followers if self._may_compute(c.name, {first.name})]
            if free:
                self._sources |= {c.name: {first.name} for c in free}
                self._stated |= _pair_names(c.name for c in free)
                yield implications.describe_dependency(first, free, mutual)

    def _take_relations(self, relations: Iterable[numbers.ArithmeticRelation]) -> Iterator[Finding]:
        described = (numbers.describe_relation(relation, self._rows) for relation in relations)
        yield from self._take_computing(finding for finding in described if finding is not None)

    def _take_computing(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Yield findings; each computed column has one rule, and no column is computed from itself."""
        for finding in findings:
            if "derive" not in finding.content:
                if not self._is_stated(finding.columns):
                    self._stated |= _pair_names(finding.columns)
                    yield finding
                continue
            (target,) = finding.content["derive"]
            sources = {*finding.columns} - {target}
            if self._is_stated(finding.columns) or not self._may_compute(target, sources):
                continue
            self._sources[target] = sources
            self._stated |= {pair for pair in _pair_names(finding.columns) if target in pair or len(sources) > 1}
            yield finding

    def _may_compute(self, target: str, sources: set[str]) -> bool:
        behind, waiting = set[str](), list(sources)
        while waiting:
            name = waiting.pop()
            if name not in behind:
                behind.add(name)
                waiting += self._sources.get(name, ())
        return target not in self._sources and target not in behind

    def _is_stated(self, names: Iterable[str]) -> bool:
        return any({*names} <= ruled for ruled in self._ruled)


def _pair_names(names: Iterable[str]) -> set[frozenset[str]]:
    return {frozenset(pair) for pair in combinations(names, 2)}
