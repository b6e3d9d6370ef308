"""The public request: the spec, the order of the columns, and what follows from the two without any data."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from privsyn.base.errors import RequestError
from privsyn.data_contracts.field_error import FieldError
from privsyn.data_contracts.linked_tables import list_constant_columns
from privsyn.data_contracts.receipts import Pricing
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.specs.places import format_place
from privsyn.tasks.codecs import ColumnCodecs, EncodingPlan, arrange_codecs
from privsyn.tasks.codecs.cells import CutCell
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart, PublicKnowledge
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho, get_pricing


@dataclass(frozen=True)
class Request:
    """What every step may know.  Nothing in it can read a row.

    Attributes:
        spec: What is released, and how.
        column_order: The released columns in the source's order; empty: in the spec's.
        threads: 0 for all cores; it changes nothing that is released.
        even: Columns whose wide bins have two cells, as in releases made before they had more.
        cuts: Fine cells that a look of the release found full, and that are cut into parts from then on.
        prior_rows: The rows of a public prior in fine codes, before any cell was cut; None: those of the spec's prior,
            read when asked for.
        part: The part of the whole budget that this request has.
        above: In the request of rows below others (:attr:`branches`), the columns of the rows above, which are made
            before; else empty.
        short_floats: Columns that the private table stores as floats of fewer than 64 bits.
    """

    spec: ReleaseSpec
    column_order: tuple[str, ...] = ()
    threads: int = 0
    even: frozenset[str] = frozenset()
    cuts: tuple[CutCell, ...] = ()
    prior_rows: CodeTable | None = None
    part: Fraction = Fraction(1)
    above: frozenset[str] = frozenset()
    short_floats: frozenset[str] = frozenset()

    @cached_property
    def branches(self) -> dict[str, Request]:
        """Table of rows -> the request of it and of the table above; empty for fewer than three tables.

        They share the budget equally.  The first table's rows are made together with those of the table above.
        """
        requests, specs = {}, self.spec.branches
        for number, (name, spec) in enumerate(specs.items()):
            order = tuple(sorted(spec.released_columns)) if number else self.column_order
            above = frozenset(list_constant_columns(spec)) if number else frozenset()
            requests[name] = replace(self, spec=spec, column_order=order, part=self.part / len(specs), above=above)
        return requests

    @property
    def given(self) -> bool:
        """Whether the rows of the table above are made before those of this request."""
        return bool(self.above)

    @property
    def has_prior(self) -> bool:
        """Whether there is a public prior, read or not."""
        return self.prior_rows is not None or self.spec.prior is not None

    @cached_property
    def prior(self) -> CodeTable | None:
        """The rows of the public prior in fine codes; None without one, and where the spec does not say where it is.

        A spec as a manifest shows it does not.  Raises RequestError for a file that does not fit the spec or its hash.
        """
        stated = self.spec.prior
        if self.prior_rows is not None and self.encoding.uncut is not None:
            from privsyn.tasks.steps.encode import encode_rows_finer  # here: most requests have none

            return encode_rows_finer(self.prior_rows, self.encoding.uncut, self.encoding)
        if self.prior_rows is not None or stated is None or not stated.place:
            return self.prior_rows
        from privsyn.sources.public_table import read_public_rows  # here: most requests have none

        return read_public_rows(self.spec, self.encoding)

    @property
    def records(self) -> int:
        """k: the most records of one person that anything is counted over."""
        return self.spec.records

    @cached_property
    def encoding(self) -> EncodingPlan:
        """The codecs of the released columns, in ``column_order``."""
        return arrange_codecs(self._codecs, self.column_order)

    @cached_property
    def _codecs(self) -> ColumnCodecs:
        return ColumnCodecs(self.spec, self.even, self.cuts)

    def order_columns(
        self, order: tuple[str, ...], threads: int | None = None, short_floats: frozenset[str] = frozenset()
    ) -> Request:
        """Return the same request with its columns in ``order``, if it has none, and the same codecs."""
        ordered = replace(
            self,
            column_order=self.column_order or order,
            threads=self.threads if threads is None else threads,
            short_floats=short_floats,
        )
        ordered.__dict__["_codecs"] = self._codecs
        for name, branch in ordered.branches.items():
            branch.__dict__["_codecs"] = self.branches[name]._codecs
        return ordered

    @cached_property
    def public(self) -> PublicKnowledge:
        """The public knowledge about the rows.  Raises RequestError for a column whose known counts have no codes."""
        try:
            return PublicKnowledge.of(self.spec, self.encoding, self.prior)
        except FieldError as error:
            raise RequestError(error.problem, error.cure, format_place(error.place)) from None

    def restrict(self, parts: Iterable[KnowledgePart]) -> Request:
        """Return the same request, whose public knowledge answers for ``parts`` only."""
        restricted = copy(self)
        restricted.__dict__["_cut"] = self._cut
        restricted.__dict__["public"] = self.public.only(parts)
        return restricted

    def cut_cells(self, cuts: tuple[CutCell, ...]) -> Request:
        """Return the same request with these cells cut, whose public knowledge answers for the same parts."""
        if cuts == self.cuts:
            return self
        if cuts not in self._cut:
            self._cut[cuts] = replace(self, cuts=cuts)
        return self._cut[cuts].restrict(self.public.parts)

    @cached_property
    def _cut(self) -> dict[tuple[CutCell, ...], Request]:
        """The requests with cells cut that were made of this one, or of one that answers for other parts."""
        return {}

    @property
    def pricing(self) -> Pricing:
        """How the noise of every release step is priced: for what the release's accountant proves."""
        return get_pricing(self.spec.effective_accountant)

    @cached_property
    def total_rho(self) -> Fraction:
        """The whole budget of the request, in the accountant's pricing; with that of releases that it improves."""
        return sum(self.rounds, Fraction(0)) * self.part

    @cached_property
    def rounds(self) -> tuple[Fraction, ...]:
        """The budgets of the pooled releases in order, this release's last; it is alone where none is improved."""
        improves, privacy = self.spec.improves, self.spec.privacy
        looks = ((privacy.epsilon, privacy.delta),) if improves is None else improves.looks
        return tuple(convert_epsilon_to_rho(epsilon, delta, self.spec.effective_accountant) for epsilon, delta in looks)
