"""Methods to compare: the trial that a method runs, its result, and the epsilon that its receipts promise.

A method is for comparisons, on data that is public or stays where it is: its noise has a seed, so that nothing
that comes out is private.  To add a method, write a function from :class:`MethodInput` to :class:`MethodResult`, and
list a :class:`Method` in an entry point (methods.py).  Import the method's package inside the function, so that an
absent package raises ImportError there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from privsyn.data_contracts.domain import Clique, Domain, choose_code_dtype
from privsyn.data_contracts.focus import Focus, NamedMarginal
from privsyn.data_contracts.mechanism_options import AnyMechanism, PrivSyn
from privsyn.data_contracts.presets import DEFAULT_ACCOUNTANT, PAPER_ACCOUNTANT, apply_paper_preset
from privsyn.data_contracts.receipts import Query, sum_rho
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.tasks.codecs.binning import Binning
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.privacy.accountant import Accountant, convert_rho_to_epsilon
from privsyn.tasks.privacy.noise import ComparisonNoise

PAPER = "Zhang et al., PrivSyn, USENIX Security 2021"


@dataclass(frozen=True)
class MethodSettings:
    """The spec's choices that a method may follow or replace.

    The accountant, the options of a mechanism, and which columns and sets of columns count more.
    """

    accountant: Accountant = DEFAULT_ACCOUNTANT
    mechanism: AnyMechanism = field(default_factory=PrivSyn)
    focus: Focus | None = None
    workload: tuple[NamedMarginal, ...] = ()

    @classmethod
    def of(cls, spec: ReleaseSpec) -> MethodSettings:
        """Return the choices of ``spec``.

        A question counts as the set of its columns, since rows come as codes, and conditions speak of values.
        """
        sets = tuple(marginal.model_copy(update={"question": None}) for marginal in spec.workload)
        return cls(spec.effective_accountant, spec.mechanism, spec.focus, sets)

    def as_in_the_paper(self) -> MethodSettings:
        """Return the paper's values, whatever the spec says; rows, seed and public limits on sizes stay the spec's.

        Accountant: Theorem 2; split: 0.1, 0.1, 0.8 (Algorithm 3); values below 3 sigma are combined, gamma 5,000
        (section 5.3, Algorithm 2); GUM replaces and duplicates in equal parts (section 5.2), alpha decays in steps.
        """
        return MethodSettings(PAPER_ACCOUNTANT, apply_paper_preset(self.mechanism))


@dataclass(frozen=True, eq=False)
class MethodInput:
    """One run of one method.

    ``rows``: the real training rows in fine codes.  ``binning``: the public bins of the rows.
    ``epsilon``, ``delta``: the promise to keep for adding or removing one person with at most ``records`` rows.
    ``seed``: the seed of the post-processing.  ``noise``: the noise source, seeded as well.
    ``threads``: the number of threads, 0 for all cores.
    """

    rows: CodeTable
    binning: Binning
    epsilon: float
    delta: float
    records: int
    noise: ComparisonNoise
    seed: int = 0
    threads: int = 0
    settings: MethodSettings = MethodSettings()
    prior: CodeTable | None = None

    @property
    def bins(self) -> Domain:
        """The domain of the public bins: of the table that every method returns."""
        return Domain.of({a: self.binning[a].size for a in self.rows.domain.attributes})

    def to_bins(self, fine: CodeTable) -> CodeTable:
        """Return fine codes as codes of the public bins."""
        domain = self.bins
        columns = (
            self.binning[a].groups.astype(choose_code_dtype(size))[fine.column(a)]
            for a, size in zip(domain.attributes, domain.sizes, strict=True)
        )
        return CodeTable(domain, tuple(columns))


@dataclass(frozen=True)
class LaplaceQuery:
    """One vector of integer counts that gets rounded Laplace noise.

    ``sensitivity`` is the exact L1 sensitivity under adding or removing one person, ``scale`` the b of Lap(b) in
    counts; the price is epsilon = sensitivity / scale, pure.
    """

    attributes: Clique
    cells: int
    sensitivity: int
    scale: float

    @property
    def epsilon(self) -> Fraction:
        """Exact price of the noise actually drawn."""
        return Fraction(self.sensitivity) / Fraction(self.scale)

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise: sqrt(2) b."""
        return math.sqrt(2.0) * self.scale


def compute_laplace_scale(epsilon: Fraction, sensitivity: int) -> float:
    """Return a scale whose exact price is at most ``epsilon``: the smallest float, or the next.

    ValueError: epsilon <= 0.
    """
    if epsilon <= 0:
        raise ValueError(f"epsilon must be positive, not {epsilon}")
    scale = sensitivity / float(epsilon)
    while Fraction(sensitivity) > Fraction(scale) * epsilon:
        scale = math.nextafter(scale, math.inf)
    return scale


@dataclass(frozen=True)
class Choices:
    """``times`` draws of the exponential mechanism from one table of log weights.

    ``spread``: how far apart one person can move two log weights, over all neighbours.  Each draw is then of bounded
    range ``spread``, so (spread^2 / 8)-zCDP (Cesar and Rogers 2021).
    """

    times: int
    spread: Fraction

    @property
    def rho(self) -> Fraction:
        """Exact price of all the draws."""
        return self.times * self.spread**2 / 8


class DomainTooLargeError(Exception):
    """A method does not work on a domain of this size; the message has public figures only, and is shown."""


def check_cells(domain: Domain, limit: int, method: str) -> None:
    """Raise DomainTooLargeError unless the full contingency table of ``domain`` has at most ``limit`` cells."""
    cells = domain.cells(domain.attributes)
    if cells > limit:
        cells_text = f"{cells:,}" if cells < 10**12 else f"about 10^{len(str(cells)) - 1}"
        raise DomainTooLargeError(
            f"{method} holds the full contingency table: at most {limit:,} cells, not {cells_text}"
        )


@dataclass(frozen=True, eq=False)
class MethodResult:
    """The result of a method: synthetic rows, and a receipt for every noisy look at the data.

    ``table``: codes of the public bins (``MethodInput.bins``).
    ``fine``: the same rows in fine codes, if the method makes fine codes.
    ``zcdp``, ``pure``: receipts of Gaussian and of Laplace noise.
    ``marginals``: the attribute sets measured besides the one-ways, if the method has such sets.
    ``unpriced``: release step -> queries that are in neither receipt.
    ``choices``: receipts of the exponential mechanism.
    """

    table: CodeTable
    fine: CodeTable | None = None
    zcdp: tuple[Query, ...] = ()
    pure: tuple[LaplaceQuery, ...] = ()
    marginals: tuple[Clique, ...] = ()
    unpriced: Mapping[str, tuple[Query, ...]] = field(default_factory=dict)
    choices: tuple[Choices, ...] = ()

    def epsilon(self, delta: float) -> float:
        """Return the epsilon (rounded up) that the receipts promise at ``delta``.

        The Gaussian receipts compose as Gaussian DP if there are no choices and every receipt is priced for it.
        Otherwise the Gaussian receipts compose with the choices as zCDP.  The result is converted to (epsilon, delta).
        The epsilons of the pure receipts are added to it (naive composition).
        """
        gaussian = not self.choices and all(q.pricing == "gaussian" for q in self.zcdp)
        accountant: Accountant = "gaussian" if gaussian else "tight"
        rho = sum_rho(self.zcdp) + sum((c.rho for c in self.choices), Fraction(0))
        composed = Fraction(convert_rho_to_epsilon(rho, delta, accountant))
        exact = composed + sum((q.epsilon for q in self.pure), Fraction(0))
        nearest = float(exact)
        return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


def spread_evenly(table: CodeTable, binning: Binning, seed: int) -> CodeTable:
    """Return codes of public bins to fine codes, each fine code of a bin equally likely; rows stay where they are."""
    rng = np.random.default_rng([seed, 0xF1E])
    domain = Domain.of({a: len(binning[a].groups) for a in table.domain.attributes})
    columns = []
    for attribute, size in zip(domain.attributes, domain.sizes, strict=True):
        groups = binning[attribute].groups
        members = np.argsort(groups, kind="stable").astype(choose_code_dtype(size))
        width = np.bincount(groups)
        code = table.column(attribute)
        columns.append(members[(np.cumsum(width) - width)[code] + rng.integers(0, width[code])])
    return CodeTable(domain, tuple(columns))


@dataclass(frozen=True)
class Method:
    """One entry of the registry.

    ``name`` is what people type and results store, and never changes its meaning; ``private`` is false for a
    reference that looks at the data without noise somewhere.  ``run`` is pure: the same trial gives the same table,
    on any number of threads.  It may raise ImportError (not installed), TimeoutError or MemoryError (did not
    finish), DomainTooLargeError (did not fit).
    """

    name: str
    title: str
    description: str
    source: str
    run: Callable[[MethodInput], MethodResult] = field(repr=False)
    private: bool = True
