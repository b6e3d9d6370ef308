"""The public request: the spec, the order of the columns, and everything that follows from them without data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple, TypeVar

from privsyn.base.errors import RequestError
from privsyn.data_contracts.domain import Clique
from privsyn.data_contracts.frozen_model import FieldError
from privsyn.data_contracts.linked_tables import list_constant_columns
from privsyn.data_contracts.mechanism_options import (
    Aim,
    Consistency,
    Independent,
    Mechanism,
    Mst,
    PrivBayes,
    PrivSyn,
    Selection,
    Synthesis,
)
from privsyn.data_contracts.receipts import Pricing
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.specs.messages import format_place
from privsyn.tasks.codecs import ColumnCodecs, EncodingPlan, arrange_codecs
from privsyn.tasks.codecs.cells import CutCell, list_counted_alone
from privsyn.tasks.estimation.pair_departures import MOST_PAIRS, is_wide, list_near_pairs
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.knowledge.public_knowledge import ALL, KnowledgePart, PublicKnowledge
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho, get_pricing

Made = TypeVar("Made")
Options = TypeVar("Options", bound=Mechanism)


class EncodingFacts(NamedTuple):
    """The facts that codecs and public knowledge depend on: see the attributes of :class:`Request`."""

    spec: ReleaseSpec
    two_celled: frozenset[str]
    cuts: tuple[CutCell, ...]
    prior_rows: CodeTable | None


class Basis:
    """Values derived from some facts, made once for all requests that share them.

    ``family``: cut cells -> the basis of the same facts with these cells cut.
    """

    def __init__(self, facts: EncodingFacts, family: dict[tuple[CutCell, ...], Basis] | None = None) -> None:
        self._facts = facts
        self._made: dict[tuple[str, tuple[str, ...]], Any] = {}
        self._family = {} if family is None else family
        self._family[facts.cuts] = self

    @property
    def cuts(self) -> tuple[CutCell, ...]:
        """The cells that are cut."""
        return self._facts.cuts

    def cut_cells(self, cuts: tuple[CutCell, ...]) -> Basis:
        """Return the basis of the same facts with these cells cut."""
        return self._family[cuts] if cuts in self._family else Basis(self._facts._replace(cuts=cuts), self._family)

    @cached_property
    def codecs(self) -> ColumnCodecs:
        """The codecs of the spec's columns."""
        return ColumnCodecs(*self._facts[:3])

    @cached_property
    def table_pairs(self) -> dict[str, tuple[ReleaseSpec, Basis]]:
        """Table of rows -> its spec and basis; empty for fewer than three tables."""
        facts = self._facts
        return {name: (spec, Basis(facts._replace(spec=spec))) for name, spec in facts.spec.table_pairs.items()}

    def is_of(self, facts: EncodingFacts) -> bool:
        """Return whether this is the basis of exactly these facts."""
        return all(own is other for own, other in zip(self._facts, facts, strict=True))

    def make_once(self, name: str, order: tuple[str, ...], make: Callable[[], Made]) -> Made:
        """Return the result of ``make``, cached for this order of the columns."""
        if (name, order) not in self._made:
            self._made[name, order] = make()
        made: Made = self._made[name, order]
        return made


@dataclass(frozen=True)
class Request:
    """The facts that every step may know.  Nothing in it can read a row.

    Attributes:
        spec: What is released, and how.
        column_order: The released columns in the source's order; empty: in the spec's order.
        threads: 0 for all cores; it does not change the release.
        two_celled: Columns whose wide bins have two cells, as in releases of earlier versions.
        cuts: Fine cells that a look of the release found full; they are cut into parts from then on.
        prior_rows: The rows of a public prior in fine codes, before any cell was cut; None: the spec's prior,
            read on demand.
        budget_share: This request's part of the whole budget.
        parent_columns: In the request of rows below others (:attr:`table_pairs`), the columns of the rows above, which
            are made before; else empty.
        parts: The parts of the public knowledge that it exposes.
        basis: The basis of an earlier request; it is used only if spec, cells and prior are the same.
    """

    spec: ReleaseSpec
    column_order: tuple[str, ...] = ()
    threads: int = 0
    two_celled: frozenset[str] = frozenset()
    cuts: tuple[CutCell, ...] = ()
    prior_rows: CodeTable | None = None
    budget_share: Fraction = Fraction(1)
    parent_columns: frozenset[str] = frozenset()
    parts: frozenset[KnowledgePart] = ALL
    basis: Basis | None = field(default=None, repr=False, compare=False)

    @cached_property
    def _basis(self) -> Basis:
        facts = EncodingFacts(self.spec, self.two_celled, self.cuts, self.prior_rows)
        return self.basis if self.basis is not None and self.basis.is_of(facts) else Basis(facts)

    @cached_property
    def table_pairs(self) -> dict[str, Request]:
        """Table of rows -> the request for it and the table above; empty for fewer than three tables.

        They share the budget equally.  The rows of the first table and of the table above are made together.
        """
        requests, table_pairs = {}, self._basis.table_pairs
        for number, (name, (spec, basis)) in enumerate(table_pairs.items()):
            order = tuple(sorted(spec.released_columns)) if number else self.column_order
            parent_columns = frozenset(list_constant_columns(spec)) if number else frozenset()
            budget_share = self.budget_share / len(table_pairs)
            requests[name] = replace(
                self,
                spec=spec,
                column_order=order,
                budget_share=budget_share,
                parent_columns=parent_columns,
                basis=basis,
            )
        return requests

    @property
    def has_parent_rows(self) -> bool:
        """Whether the rows of the table above are made before this request's rows."""
        return bool(self.parent_columns)

    @property
    def has_prior(self) -> bool:
        """Whether there is a public prior, read or not."""
        return self.prior_rows is not None or self.spec.prior is not None

    @cached_property
    def prior(self) -> CodeTable | None:
        """The rows of the public prior in fine codes; None without one, or if the spec does not give its place.

        A manifest's spec does not.  Raises RequestError for a file that does not fit the spec or its hash.
        """
        stated = self.spec.prior
        if self.prior_rows is not None and self.encoding.uncut is not None:
            from privsyn.tasks.codecs.encode_rows import encode_rows_finer  # here: most requests have no prior

            return encode_rows_finer(self.prior_rows, self.encoding.uncut, self.encoding)
        if self.prior_rows is not None or stated is None or not stated.place:
            return self.prior_rows
        from privsyn.specs.public_files import read_public_rows  # here: most requests have no prior

        return self._make_once("prior", lambda: read_public_rows(self.spec, self.encoding))

    @property
    def records(self) -> int:
        """k: the most records of one person in any count."""
        return self.spec.records

    def get_options(self, kind: type[Options]) -> Options:
        """Return the mechanism's options, of type ``kind``.  Raises TypeError if it is another mechanism."""
        options = self.spec.mechanism
        if not isinstance(options, kind):
            raise TypeError(f"the request asks for the mechanism {options.name!r}")
        return options

    @property
    def selection(self) -> Selection:
        """The settings of selection, or the defaults with the mechanism's ``max_cells``."""
        options = self.spec.mechanism
        if isinstance(options, PrivSyn):
            return options.selection
        return Selection(max_cells=options.max_cells) if isinstance(options, Mst | PrivBayes | Aim) else Selection()

    @property
    def division(self) -> str:
        """How the one-ways share their budget: "equal", or "cells" (in proportion to cells^(2/3))."""
        options = self.spec.mechanism
        if isinstance(options, PrivSyn):
            return options.split.one_ways
        return "cells" if isinstance(options, Independent) else "equal"

    @property
    def consistency(self) -> Consistency:
        """The settings of consistency, or the defaults if the mechanism has none."""
        options = self.spec.mechanism
        return options.consistency if isinstance(options, PrivSyn) else Consistency()

    @property
    def synthesis(self) -> Synthesis:
        """The settings of synthesis, completed by the defaults."""
        options = self.spec.mechanism.synthesis
        return options if isinstance(options, Synthesis) else Synthesis(**options.model_dump())

    def list_asked_pairs(self, attributes: Clique, limit: int = MOST_PAIRS) -> list[Clique] | None:
        """Return the pairs to ask of a wide table, or None (all pairs) if the table is not wide.

        The choice depends on names, their order and the focus alone.  ``attributes``: the rows' attributes, in order;
        ``limit``: the largest number of pairs, not counting pairs of the focus.
        """
        if not is_wide(self.encoding.domain.attributes):
            return None
        column_of = {codec.attribute: (*codec.sources, codec.attribute)[0] for codec in self.encoding.codecs}
        columns = {a: column_of.get(a, a) for a in attributes}
        return list_near_pairs(attributes, columns, [a for a in self.public.in_focus if a in columns], limit)

    def list_settled_pairs(self, attributes: Clique, asked_pairs: Sequence[Clique] | None) -> list[Clique]:
        """Return the pairs among ``asked_pairs`` (None: all pairs of ``attributes``) that need no score.

        Either one attribute is only counted alone, or both attributes belong to rows above that are already made.
        """
        counted_alone = set(list_counted_alone(self.encoding.binning))
        made_before = set(self.encoding.list_attributes_within(self.parent_columns))
        if not counted_alone and not made_before:
            return []
        pairs = combinations(attributes, 2) if asked_pairs is None else asked_pairs
        return [pair for pair in pairs if counted_alone & {*pair} or made_before >= {*pair}]

    @property
    def named_pairs(self) -> frozenset[Clique]:
        """The pairs of attributes that the spec names as measured sets without a question."""
        named = (m for m in self.spec.measured_sets if m.asked is None)
        sets = {self.encoding.domain.ordered(self.encoding.attributes_of(m.columns)) for m in named}
        return frozenset(clique for clique in sets if len(clique) == 2)

    @cached_property
    def encoding(self) -> EncodingPlan:
        """The codecs of the released columns, in ``column_order``."""
        return self._make_once("encoding", lambda: arrange_codecs(self._basis.codecs, self.column_order))

    def _make_once(self, name: str, make: Callable[[], Made]) -> Made:
        return self._basis.make_once(name, self.column_order, make)

    def order_columns(self, order: tuple[str, ...], threads: int | None = None) -> Request:
        """Return the same request and codecs, with its columns in ``order`` unless it already has an order."""
        return replace(
            self,
            column_order=self.column_order or order,
            threads=self.threads if threads is None else threads,
            basis=self._basis,
        )

    @cached_property
    def public(self) -> PublicKnowledge:
        """The public knowledge about the rows.  Raises RequestError for a column whose known counts have no codes."""
        try:
            whole = self._make_once("public", lambda: PublicKnowledge.of(self.spec, self.encoding, self.prior))
        except FieldError as error:
            raise RequestError(error.problem, error.cure, format_place(error.place)) from None
        return whole.only(self.parts)

    def restrict(self, parts: Iterable[KnowledgePart]) -> Request:
        """Return the same request with only ``parts`` of its public knowledge."""
        return replace(self, parts=frozenset(parts), basis=self._basis)

    def cut_cells(self, cuts: tuple[CutCell, ...]) -> Request:
        """Return the same request with these cells cut, and the same parts of public knowledge."""
        if cuts == self.cuts:
            return self
        basis = self._basis.cut_cells(cuts)
        return replace(self, cuts=basis.cuts, basis=basis)

    @property
    def pricing(self) -> Pricing:
        """The pricing of every release step's noise: what the release's accountant proves."""
        return get_pricing(self.spec.effective_accountant)

    @cached_property
    def total_rho(self) -> Fraction:
        """The whole budget of the request, in the accountant's pricing, including the releases that it improves."""
        return sum(self.rounds, Fraction(0)) * self.budget_share

    @cached_property
    def rounds(self) -> tuple[Fraction, ...]:
        """The budgets of the pooled releases in order, this release's last; only its own if it improves none."""
        improves, privacy = self.spec.improves, self.spec.privacy
        looks = ((privacy.epsilon, privacy.delta),) if improves is None else improves.looks
        return tuple(convert_epsilon_to_rho(epsilon, delta, self.spec.effective_accountant) for epsilon, delta in looks)
