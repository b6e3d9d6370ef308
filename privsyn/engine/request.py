"""The public request: the spec, the order of the columns, and what follows from the two without any data."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from privsyn.base.errors import RequestError
from privsyn.data_contracts.field_error import FieldError
from privsyn.data_contracts.receipts import Pricing
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.specs.places import format_place
from privsyn.tasks.codecs import EncodingPlan, plan
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.knowledge.public_knowledge import Part, PublicKnowledge
from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho, get_pricing


@dataclass(frozen=True)
class Request:
    """What every step may know.  Nothing in it can read a row.

    ``column_order``: the released columns in the source's order, since the order in the spec means nothing; empty: the
    spec's order.  ``threads``: 0 for all cores; no part of what is released.  ``even``: columns of a release of before,
    whose wide bins had two cells.  ``prior``: the rows of a public prior in fine codes; not given: those of the spec's
    prior, read when the request is made.  A spec as a manifest shows it does not say where they are: then None.
    """

    spec: ReleaseSpec
    column_order: tuple[str, ...] = ()
    threads: int = 0
    even: frozenset[str] = frozenset()
    prior: CodeTable | None = None

    def __post_init__(self) -> None:
        """Read the public rows.  Raises RequestError for a prior whose file does not fit the spec or its hash."""
        stated = self.spec.prior
        if self.prior is None and stated is not None and stated.place:
            from privsyn.sources.public_table import read_public_rows  # here: most requests have none

            object.__setattr__(self, "prior", read_public_rows(self.spec, self.encoding))

    @property
    def records(self) -> int:
        """k: the most records of one person that anything is counted over."""
        return self.spec.records

    @cached_property
    def encoding(self) -> EncodingPlan:
        """The codecs of the released columns, in ``column_order``."""
        return plan(self.spec, self.column_order, self.even)

    @cached_property
    def public(self) -> PublicKnowledge:
        """The public knowledge about the rows.  Raises RequestError for a column whose known counts have no codes."""
        try:
            return PublicKnowledge.of(self.spec, self.encoding, self.prior)
        except FieldError as error:
            raise RequestError(error.problem, error.cure, format_place(error.place)) from None

    def restrict(self, parts: Iterable[Part]) -> Request:
        """Return the same request, whose public knowledge answers for ``parts`` only."""
        restricted = copy(self)
        restricted.__dict__["public"] = self.public.only(parts)
        return restricted

    @property
    def pricing(self) -> Pricing:
        """How the noise of every release step is priced: for what the release's accountant proves."""
        return get_pricing(self.spec.accountant)

    @cached_property
    def total_rho(self) -> Fraction:
        """The whole budget of the request, in the accountant's pricing; with that of releases that it improves."""
        return sum(self.rounds, Fraction(0))

    @cached_property
    def rounds(self) -> tuple[Fraction, ...]:
        """The budget of each release that is pooled, in order, this one's last; one number where none is improved."""
        improves, privacy = self.spec.improves, self.spec.privacy
        looks = ((privacy.epsilon, privacy.delta),) if improves is None else improves.looks
        return tuple(convert_epsilon_to_rho(epsilon, delta, self.spec.accountant) for epsilon, delta in looks)
