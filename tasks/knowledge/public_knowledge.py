"""Public knowledge about the rows, as one object: rules, prior, totals, targets and columns that move together.

A step declares which parts it reads.  Its cache key includes the keys of these parts, and its function gets an object
that refuses all others.  So a part that changes a step's result cannot be missing from its key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np

from privsyn.data_contracts.columns import BooleanColumn, CategoricalColumn, Column
from privsyn.data_contracts.domain import Clique, Domain, drop_attributes
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.rules import Derive, LookupRule, Rule, map_computed_columns
from privsyn.data_contracts.spec_checks import name_difference_attribute
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.categories import LevelCodec, OneHotCodec
from privsyn.tasks.codecs.cells import list_roundings
from privsyn.tasks.codecs.derived import SplitCodec
from privsyn.tasks.codecs.encoding_plan import list_asked_thresholds
from privsyn.tasks.codecs.person_figures import SummaryCodec
from privsyn.tasks.estimation import known_zeros
from privsyn.tasks.estimation.expected_error import TargetWeights
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.merged_codes import NO_STARTS, Starts, find_starts
from privsyn.tasks.estimation.pair_departures import ExpectedCounts, IndependentCounts, is_wide
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.knowledge import prior_pairs
from privsyn.tasks.knowledge.totals import ExactCounts, KnownTotals, list_exact_in_rules

KEEPING_RULES = 4
"""Version of the method that keeps rules in rows; part of keys if there are rules."""

KEEPING_ACROSS = 2
"""Version of the method that keeps rules across linked rows; part of keys if there are such rules."""

COVERED_BY_PRIOR = 2
"""Version of the choice of attributes that a prior informs; part of keys if there is a prior."""


COMPARED_WEIGHT = 1.0
"""Weight of two compared columns and their difference among the measured sets."""


class KnowledgePart(StrEnum):
    """A part of the public knowledge, or the aspect of a part that one kind of step reads."""

    CODES = "the changes of codes by rules and levels"
    RULES = "the rules about one row, or about the roles in a household"
    ACROSS = "the rules across rows of a person"
    PRIOR = "the rows of the prior"
    PRIOR_PAIRS = "the pairs of the prior"
    KNOWN_COLUMNS = "which columns have known counts"
    KNOWN_PAIRS = "which pairs have known counts"
    KNOWN_CODES = "the known counts of single columns"
    TOTALS = "all known counts"
    TARGETS = "the focus and the workload"
    SCORED = "the columns whose scores get more of the budget"
    NEAR = "the columns whose pairs are all scored even in a wide table"
    TWO_VALUED = "the two-valued columns in focus, which have trends like numbers"
    TOGETHER = "the columns that move together"


ALL = frozenset(KnowledgePart)

_PARTS_THAT_IMPLY: dict[KnowledgePart, frozenset[KnowledgePart]] = {
    KnowledgePart.PRIOR: frozenset({KnowledgePart.PRIOR, KnowledgePart.PRIOR_PAIRS}),
    KnowledgePart.KNOWN_COLUMNS: frozenset(
        {KnowledgePart.KNOWN_COLUMNS, KnowledgePart.KNOWN_CODES, KnowledgePart.TOTALS}
    ),
    KnowledgePart.KNOWN_PAIRS: frozenset({KnowledgePart.KNOWN_PAIRS, KnowledgePart.TOTALS}),
    KnowledgePart.KNOWN_CODES: frozenset({KnowledgePart.KNOWN_CODES, KnowledgePart.TOTALS}),
}
"""Part -> the declared parts that allow a step to read it; a part that is not listed must itself be declared."""


@dataclass(frozen=True, eq=False)
class PublicKnowledge:
    """The public knowledge that the spec states about the rows, in the codes of ``encoding``.

    ``parts``: the parts that may be read here; accessors of other parts raise TypeError.
    """

    spec: ReleaseSpec
    encoding: EncodingPlan
    _prior: CodeTable | None = None
    _totals: KnownTotals | None = None
    parts: frozenset[KnowledgePart] = ALL

    @classmethod
    def of(cls, spec: ReleaseSpec, encoding: EncodingPlan, prior: CodeTable | None) -> PublicKnowledge:
        """Return the knowledge that ``spec`` states; ``prior``: the rows of its prior in fine codes.

        Raises FieldError if known counts of a column do not fit its codes.
        """
        return cls(spec, encoding, prior, KnownTotals.of(spec.totals, encoding) if spec.totals else None)

    def only(self, parts: Iterable[KnowledgePart]) -> PublicKnowledge:
        """Return this knowledge restricted to ``parts``."""
        return replace(self, parts=frozenset(parts))

    def key(self, parts: Collection[KnowledgePart] = ALL) -> dict[str, Any]:
        """Return the cache key of ``parts``, JSON-ready; a part that the spec does not state adds nothing."""
        return {name: value for part in parts for name, value in _KEYS[part](self).items()}

    def in_codes(self, recode: Recode) -> KnowledgeInCodes:
        """Return this knowledge in the coarse codes of ``recode``."""
        return KnowledgeInCodes(self, recode)

    def check(self, part: KnowledgePart) -> None:
        """Raise TypeError if ``part`` may not be read here."""
        if not self.parts & _PARTS_THAT_IMPLY.get(part, {part}):
            raise TypeError(f"the step does not declare that it reads {part}")

    @property
    def prior(self) -> CodeTable | None:
        """The public rows in fine codes; None without a prior, or if its file is not named."""
        if self._prior is not None:
            self.check(KnowledgePart.PRIOR)
        return self._prior

    @property
    def totals(self) -> KnownTotals | None:
        """The known counts; None without any."""
        if self._totals is not None:
            self.check(KnowledgePart.TOTALS)
        return self._totals

    @property
    def measured_alone(self) -> Domain:
        """The fine domain of the attributes without known counts."""
        if self._totals is None:
            return self.encoding.domain
        self.check(KnowledgePart.KNOWN_COLUMNS)
        return drop_attributes(self.encoding.domain, self._totals.one_way.keys())

    @property
    def measured_again(self) -> Domain:
        """The fine domain of the attributes that may be measured a second time: all but rounding units."""
        return drop_attributes(self.measured_alone, list_roundings(self.encoding.binning))

    @property
    def known_pairs(self) -> frozenset[Clique]:
        """The pairs of attributes with known counts, in domain order."""
        if self._totals is None:
            return frozenset()
        self.check(KnowledgePart.KNOWN_PAIRS)
        return frozenset(self._totals.pairs)

    def add_known_codes(self, recode: Recode) -> Recode:
        """Return ``recode`` with the codes of attributes with known counts added, in domain order."""
        if self._totals is None:
            return recode
        self.check(KnowledgePart.KNOWN_CODES)
        return self._totals.with_recode(recode, self.encoding.domain.attributes)

    @property
    def targets(self) -> TargetWeights:
        """The attributes of the columns and sets of columns that the spec weights more."""
        focus, attributes_of = self.spec.focus, self.encoding.attributes_of
        if focus is not None or self.spec.workload:
            self.check(KnowledgePart.TARGETS)
        named = tuple((frozenset(attributes_of(m.columns)), m.weight) for m in self.spec.workload)
        if focus is None:
            return TargetWeights(named=named)
        return TargetWeights(frozenset(attributes_of(focus.columns)), focus.weight, named)

    @property
    def scored_more(self) -> frozenset[str]:
        """The attributes whose pairs get half of the budget of scores; empty if all pairs get equal shares."""
        if self.spec.focus is None or not self.spec.scores_focus_more:
            return frozenset()
        self.check(KnowledgePart.SCORED)
        return frozenset(self.encoding.attributes_of(self.spec.focus.columns))

    @property
    def in_focus(self) -> tuple[str, ...]:
        """The attributes in focus, in domain order, whose pairs are all scored even in a wide table."""
        if self.spec.focus is None:
            return ()
        self.check(KnowledgePart.NEAR)
        return self.encoding.domain.ordered(self.encoding.attributes_of(self.spec.focus.columns))

    @property
    def two_valued(self) -> tuple[str, ...]:
        """The attributes in focus that are columns of two listed values."""
        two_valued = _list_two_valued(self)
        if two_valued:
            self.check(KnowledgePart.TWO_VALUED)
        return two_valued

    @property
    def measured_sets(self) -> tuple[tuple[frozenset[str], float], ...]:
        """The attributes of each set of columns to be measured jointly, each set once, with its largest weight."""
        weight_by_set: dict[frozenset[str], float] = {}
        for marginal in self.spec.measured_sets:
            self.check(KnowledgePart.TARGETS)
            attributes = frozenset(self.encoding.attributes_of(marginal.columns))
            if len(attributes) > 1:  # a summary without group columns is counted alone
                weight_by_set[attributes] = max(weight_by_set.get(attributes, 0.0), marginal.weight)
        for pair in self.spec.compared_pairs:
            self.check(KnowledgePart.TARGETS)
            weight_by_set[frozenset((*pair, name_difference_attribute(*pair)))] = COMPARED_WEIGHT
        return tuple(weight_by_set.items())

    @property
    def exact_in_rules(self) -> tuple[str, ...]:
        """The attributes with exact counts that rules use; the repair of rows does not change them."""
        return list_exact_in_rules(self.totals, self.encoding)

    @property
    def together(self) -> tuple[tuple[str, ...], ...]:
        """The groups of columns whose values lie close together in every row."""
        if self.spec.together:
            self.check(KnowledgePart.TOGETHER)
        return self.spec.together


@dataclass(frozen=True, eq=False)
class KnowledgeInCodes:
    """Public knowledge about the rows, in the coarse codes of a released recoding."""

    public: PublicKnowledge
    recode: Recode

    @cached_property
    def zeros(self) -> known_zeros.KnownZeros | None:
        """The joint codes that the rules, or the prior with ``zeros``, forbid; None without either."""
        public, stated = self.public, self.public.spec.prior
        by_rules = None
        if public.spec.rules:
            public.check(KnowledgePart.RULES)
            by_rules = known_zeros.build_known_zeros(public.encoding, self.recode)
        if stated is None or not stated.zeros or public.prior is None:
            return by_rules
        absent = prior_pairs.list_absent_pairs(public.prior, self.recode)
        return known_zeros.KnownZeros((*(() if by_rules is None else by_rules.tables), *absent))

    @property
    def tied(self) -> frozenset[str]:
        """The attributes that rules tie to others, which are synthesized together."""
        return frozenset() if self.zeros is None else self.zeros.tied

    @property
    def null_codes(self) -> dict[str, int]:
        """Attribute -> code of null, for attributes that no rule and no known counts constrain."""
        totals, zero_tables = self.public.totals, [] if self.zeros is None else self.zeros.tables
        constrained = self.tied | {clique[0] for clique, _ in zero_tables}
        nullable = [c.attribute for c in self.public.encoding.codecs if any(r.nullable for r in c.ranges().values())]
        free = [a for a in nullable if a not in constrained and (totals is None or not totals.has((a,)))]
        return known_zeros.find_null_codes(self.recode, free)

    @cached_property
    def prior_pairs(self) -> prior_pairs.PriorPairs | None:
        """The prior's expected counts of pairs; None without a prior."""
        if self.public.prior is None:
            return None
        self.public.check(KnowledgePart.PRIOR_PAIRS)
        return prior_pairs.PriorPairs.of(self.public.prior, self.recode)

    @property
    def expected(self) -> ExpectedCounts:
        """The reference counts of scores: the prior's expected counts, or independent counts."""
        return self.prior_pairs or IndependentCounts.of(self.recode)

    @property
    def known_pairs(self) -> list[Marginal]:
        """The known counts of pairs."""
        totals = self.public.totals
        return [] if totals is None else totals.coarse_pairs(self.recode)

    @property
    def starts(self) -> Starts:
        """The initial groups of codes of each measured set."""
        spec = self.public.spec
        if not spec.compared_pairs and not spec.measured_sets:
            return NO_STARTS
        self.public.check(KnowledgePart.TARGETS)
        groupings = {a: (np.where(r.kept, r.coarse, -1), r.size) for a, r in self.recode.items()}
        return find_starts(spec, self.public.encoding, groupings)

    @property
    def exact_counts(self) -> tuple[ExactCounts, ...]:
        """The known counts that rows match exactly."""
        totals = self.public.totals
        return () if totals is None else totals.coarse_exact(self.recode)


def _describe_codes(public: PublicKnowledge) -> dict[str, Any]:
    """Return the changes of codes by rules and questions: edges, computed columns, dummies, levels and summaries.

    Edges come from rules and from conditions of measured questions.  A change of any of these counts private rows
    again; other changes of rules do not.  The key of a summary includes the rules that compute its columns.
    """
    plan = public.encoding
    thresholds = list_asked_thresholds(public.spec)
    key_of_questions: dict[str, Any] = {"asked": thresholds} if thresholds else {}
    if plan.summaries:
        key_of_questions["summaries"] = [
            [codec.attribute, codec.measured.cuts, *_describe_computed(public.spec, codec)] for codec in plan.summaries
        ]
    if plan.rules is None:
        return {**key_of_questions, **_enter("compare", public.spec.compare)}
    groups = [[*c.sources, len(c.groups)] for c in plan.codecs if isinstance(c, OneHotCodec)]
    splits = {c.attribute: c.digest for c in plan.codecs if isinstance(c, SplitCodec)}
    levels = {c.attribute: c.digest for c in plan.codecs if isinstance(c, LevelCodec)}
    key = {"thresholds": plan.rules.thresholds, "computed": list(plan.rules.order), "one_of": groups}
    key |= {**({"split": splits} if splits else {}), **({"levels": levels} if levels else {})}
    return {**key, **key_of_questions, **_enter("compare", public.spec.compare)}


def _describe_computed(spec: ReleaseSpec, codec: SummaryCodec) -> Iterator[list[Any]]:
    """Yield the name, definition and rule of each computed column that a summary reads."""
    computing = [rule for rule in spec.rules if isinstance(rule, Derive | LookupRule)]
    rules = {name: rule for rule in computing for name in map_computed_columns(rule)}
    for name in codec.book.find_computed_columns(codec.node.columns):
        column = spec.released_columns[name].model_dump(mode="json", exclude={"description", "unit"})
        yield [name, column, _describe_computation(rules[name], name)]


def _describe_computation(rule: Derive | LookupRule, name: str) -> Any:
    """Return the definition of a computed column: its expression, or a digest of its table's rows."""
    if isinstance(rule, Derive):
        return rule.derive[name]
    table = rule.lookup.model_dump(mode="json", include={"from_", "to", "rows"})
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()


def _describe_rules(public: PublicKnowledge) -> dict[str, Any]:
    rule_book = public.encoding.rules
    only_rows = _list_across(public) - (set() if rule_book is None else {c.rule for c in rule_book.role_conditions})
    rules = [_describe_rule(rule) for i, rule in enumerate(public.spec.rules) if i not in only_rows]
    return {"rules": rules, "keeping_rules": KEEPING_RULES} if rules else {}


def _describe_rule(rule: Rule) -> dict[str, Any]:
    """Return the content of a rule without its source, which changes no row."""
    return rule.model_dump(mode="json", by_alias=True, exclude={"source"})


def _describe_across(public: PublicKnowledge) -> dict[str, Any]:
    across = _list_across(public)
    rules = [_describe_rule(rule) for i, rule in enumerate(public.spec.rules) if i in across]
    return {"across": rules, "keeping_across": KEEPING_ACROSS} if rules else {}


def _list_across(public: PublicKnowledge) -> frozenset[int]:
    """Return the numbers of the rules across rows.

    Only the steps that link and decode rows read them, except rules about roles, which concern a household's record.
    """
    rules = public.encoding.rules
    return frozenset() if rules is None else frozenset(c.rule for c in rules.across)


def _describe_scored(public: PublicKnowledge) -> dict[str, Any]:
    focus, more = public.spec.focus, public.spec.scores_focus_more
    return {"scored_more": list(focus.columns)} if more and focus is not None else {}


def _describe_near(public: PublicKnowledge) -> dict[str, Any]:
    focus, wide = public.spec.focus, is_wide(public.encoding.domain.attributes)
    return {"in_focus": list(focus.columns)} if wide and focus is not None else {}


def _list_two_valued(public: PublicKnowledge) -> tuple[str, ...]:
    columns, focus, binning = public.spec.columns, public.spec.focus, public.encoding.binning
    focus_columns = () if focus is None else focus.columns
    return tuple(c for c in focus_columns if c in binning and _has_two_values(columns.get(c)))


def _has_two_values(column: Column | None) -> bool:
    return isinstance(column, BooleanColumn) or (isinstance(column, CategoricalColumn) and len(column.values) == 2)


def _enter(name: str, value: Any) -> dict[str, Any]:
    """Return the entry, or none if its value is empty."""
    return {name: value} if value else {}


_KEYS: Mapping[KnowledgePart, Callable[[PublicKnowledge], dict[str, Any]]] = {
    KnowledgePart.CODES: _describe_codes,
    KnowledgePart.RULES: _describe_rules,
    KnowledgePart.ACROSS: _describe_across,
    KnowledgePart.PRIOR: lambda public: public.spec.prior_key(),
    KnowledgePart.PRIOR_PAIRS: lambda public: (
        {**public.spec.prior_key(), "told": COVERED_BY_PRIOR} if public.spec.prior_key() else {}
    ),
    KnowledgePart.KNOWN_COLUMNS: lambda public: _enter("known", public._totals and sorted(public._totals.one_way)),
    KnowledgePart.KNOWN_PAIRS: lambda public: _enter("known", public._totals and sorted(public._totals.pairs)),
    KnowledgePart.KNOWN_CODES: lambda public: (
        {"totals": public._totals.key_of_codes()} if public._totals and public._totals.one_way else {}
    ),
    KnowledgePart.TOTALS: lambda public: {} if public._totals is None else {"totals": public._totals.key()},
    KnowledgePart.TARGETS: lambda public: {**public.spec.targets(), **_enter("compare", public.spec.compare)},
    KnowledgePart.SCORED: _describe_scored,
    KnowledgePart.NEAR: _describe_near,
    KnowledgePart.TWO_VALUED: lambda public: _enter("two_valued", sorted(_list_two_valued(public))),
    KnowledgePart.TOGETHER: lambda public: _enter("together", public.spec.together),
}
"""Part -> its entries in cache keys, with the key names of 0.3.0."""
