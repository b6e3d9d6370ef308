"""Methods to compare: what a method is, its result, and the methods that are this project's mechanisms.

A method is for comparisons, on data that is public or stays where it is: its noise has a seed, so that nothing
that comes out is private.  To add a method, write a function from :class:`MethodInput` to :class:`MethodResult`, and
list a :class:`Method` in an entry point (compare_methods.py).  Import the method's package inside the function, so that
an absent package raises ImportError there.

A test holds the method ``default`` to a release: the same noise gives the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Literal

import numpy as np
import pyarrow as pa

from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import LookKind
from privsyn.data_contracts.columns import BooleanColumn
from privsyn.data_contracts.domain import Clique, Domain, choose_code_dtype
from privsyn.data_contracts.focus import Focus, NamedMarginal
from privsyn.data_contracts.mechanism_options import (
    Aim,
    AnyMechanism,
    Independent,
    Mst,
    PrivBayes,
    PrivSyn,
    Rows,
    Synthesis,
)
from privsyn.data_contracts.presets import DEFAULT_ACCOUNTANT, PAPER_ACCOUNTANT, apply_paper_preset
from privsyn.data_contracts.promise import Guarantee, Unit
from privsyn.data_contracts.public_counts import uses_prior
from privsyn.data_contracts.receipts import Query, sum_rho
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.inputs import Inputs
from privsyn.engine.memory import DrawNoise, MemoryRun
from privsyn.engine.request import Request
from privsyn.engine.step import Output, Progress, Step, connect, list_looks
from privsyn.evaluation.coded_tables import to_bins
from privsyn.pipelines.common_steps import ENCODE
from privsyn.pipelines.registry import build_steps
from privsyn.tasks.codecs.cells import Binning
from privsyn.tasks.estimation.recode import build_coarse_domain
from privsyn.tasks.kernels.counting import CodeTable, build_code_batch
from privsyn.tasks.privacy.accountant import Accountant, convert_rho_to_epsilon
from privsyn.tasks.privacy.noise import ComparisonNoise
from privsyn.tasks.steps import decode
from privsyn.tasks.synthesis.fine_codes import fit_related_places

PAPER = "Zhang et al., PrivSyn, USENIX Security 2021"

Steps = tuple[Step, ...]


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
        return to_bins(fine, {a: self.binning[a].groups for a in self.rows.domain.attributes})


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


def default(trial: MethodInput) -> MethodResult:
    """Return what a release does, by the trial's own settings."""
    return run_mechanism(trial, trial.settings.mechanism)


def paper(trial: MethodInput) -> MethodResult:
    """Return the paper's settings."""
    return default(apply_paper_options(trial))


def independent(trial: MethodInput) -> MethodResult:
    """Measure one-ways only, with the whole budget."""
    mechanism = trial.settings.mechanism
    rows = _get_row_settings(mechanism)
    return run_mechanism(trial, Independent(compression=mechanism.compression, synthesis=rows))


def mst(trial: MethodInput, rows_by: Literal["sweeps", "mbi"] = "sweeps") -> MethodResult:
    """Return the mechanism ``mst``, with the trial's compression.

    Raises ModuleNotFoundError where mbi is not installed.
    """
    mechanism = trial.settings.mechanism
    rows = Synthesis(**_get_row_settings(mechanism).model_dump())
    return run_mechanism(trial, Mst(compression=mechanism.compression, rows_by=rows_by, synthesis=rows))


def privbayes(trial: MethodInput) -> MethodResult:
    """Return the mechanism ``privbayes``, with the trial's compression."""
    mechanism = trial.settings.mechanism
    rows = _get_row_settings(mechanism)
    return run_mechanism(trial, PrivBayes(compression=mechanism.compression, synthesis=rows))


def aim(trial: MethodInput) -> MethodResult:
    """Return the mechanism ``aim``, by the trial's options of it, or its compression."""
    return run_mechanism(trial, choose_aim(trial.settings.mechanism))


def run_mechanism(trial: MethodInput, mechanism: AnyMechanism) -> MethodResult:
    """Run a mechanism of this project on the trial's rows."""
    request = request_of(trial, mechanism)
    return run_steps(trial, request, build_steps(request))


def choose_aim(mechanism: AnyMechanism) -> Aim:
    """Return the options of ``aim`` if they are those, else its own with the compression and rows of others."""
    if isinstance(mechanism, Aim):
        return mechanism
    rows = Synthesis(**_get_row_settings(mechanism).model_dump())
    return Aim(compression=mechanism.compression, synthesis=rows)


def _get_row_settings(options: AnyMechanism) -> Rows:
    return Rows(**{name: getattr(options.synthesis, name) for name in Rows.model_fields})


def apply_paper_options(trial: MethodInput) -> MethodInput:
    """Return the trial with the settings of the paper."""
    return replace(trial, settings=trial.settings.as_in_the_paper())


def _decode_fine_rows(step: Step) -> Step:
    """Return in the place of decode: fine codes of the rows, which metrics count, and no values."""

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        recode, fine = inputs.read_pooled_recode(), request.encoding.domain
        codes = CodeTable.from_arrow(list(inputs.batches(step.inputs[0])), build_coarse_domain(recode))
        generator = decode.seed_generator(request.spec.mechanism.synthesis.seed)
        schema = tables.build_code_schema(fine)
        related = request.synthesis.related_inside
        asked_pairs = request.list_asked_pairs(codes.domain.attributes) if related else None
        model = fit_related_places(codes, recode, request.encoding.binning, asked_pairs) if related else None
        batches = [
            build_code_batch(schema, (part[a] for a in schema.names))
            for part in decode.iterate_fine_codes(codes, recode, generator, model)
        ]
        return {"fine": pa.Table.from_batches(batches, schema=schema)}

    return replace(step, title="Fine rows", outputs={"fine": tables.SYNTHETIC_CODES}, run=run)


def draw_gaussian(trial: MethodInput) -> DrawNoise:
    """Return the trial's own noise, query by query."""
    return lambda step, queries: [trial.noise.draw(q.sigma, q.cells) for q in queries]


def run_steps(
    trial: MethodInput, request: CodeRequest, steps: Steps, draw: DrawNoise | None = None, unpriced: Sequence[str] = ()
) -> MethodResult:
    """Run the steps on the trial's rows; ``unpriced``: looks whose queries are no Gaussian receipts."""
    fine = trial.rows.domain
    inputs = {ENCODE.name: {"encoded_rows": trial.rows.to_arrow()}}
    steps = connect((*steps[:-1], _decode_fine_rows(steps[-1])))
    run = MemoryRun(request, steps, draw or draw_gaussian(trial), known_tables=inputs)
    rows = CodeTable.from_arrow(run.run()[steps[-1].name]["fine"].to_batches(), fine)
    looks = {look.name for look in list_looks(steps, LookKind.MARGINALS)}
    measured = [q.attributes for name, queries in run.receipts.items() if name in looks for q in queries]
    priced = [q for name, queries in run.receipts.items() if name not in unpriced for q in queries]
    return MethodResult(
        trial.to_bins(rows),
        rows,
        tuple(priced),
        marginals=tuple(dict.fromkeys(attributes for attributes in measured if len(attributes) > 1)),
        unpriced={name: tuple(run.receipts[name]) for name in unpriced if name in run.receipts},
    )


@dataclass(frozen=True)
class CodeEncoding:
    """What steps ask of an encoding where rows come as codes: the domain and its public bins.

    ``codecs`` and the next four: none, as no column is read, cut or counted by value, and no two are compared.
    """

    domain: Domain
    binning: Binning
    codecs: tuple[()] = ()
    differences: tuple[()] = ()
    on_ladder: tuple[()] = ()
    wide_celled: tuple[()] = ()
    uncut: None = None

    def attributes_of(self, columns: Collection[str]) -> tuple[str, ...]:
        """Return the attributes of these columns: each column is one attribute."""
        return tuple(a for a in self.domain.attributes if a in columns)

    def list_attributes_within(self, columns: Collection[str]) -> tuple[str, ...]:
        """Return the attributes that follow from these columns alone: each column is one attribute."""
        return self.attributes_of(columns)

    def labels(self) -> dict[str, list[str]]:
        """Return the labels of every attribute: each code is its own."""
        return {a: [str(code) for code in range(self.domain.size(a))] for a in self.domain.attributes}


@dataclass(frozen=True, kw_only=True)
class CodeRequest(Request):
    """The public request of a trial, whose rows come as codes."""

    trial: MethodInput

    @cached_property
    def encoding(self) -> CodeEncoding:  # type: ignore[override]
        """The trial's domain and bins."""
        return CodeEncoding(self.trial.rows.domain, self.trial.binning)


def request_of(trial: MethodInput, mechanism: AnyMechanism) -> CodeRequest:
    """Return the request of ``trial`` by ``mechanism``, its rows made with the trial's seed."""
    promise = Guarantee(epsilon=trial.epsilon, delta=trial.delta)
    spec = ReleaseSpec(
        dataset="comparison",
        data="codes",
        unit=Unit(records_per_person=trial.records),
        privacy=promise,
        budget=promise,
        columns={a: BooleanColumn(kind="boolean") for a in trial.rows.domain.attributes},
        accountant=trial.settings.accountant,
    )
    spec = spec.by(mechanism).with_rows(seed=trial.seed)
    if isinstance(mechanism, Aim) or (
        isinstance(mechanism, PrivSyn) and mechanism.selection.criterion == "expected_error"
    ):
        spec = spec.model_copy(update={"focus": trial.settings.focus, "workload": trial.settings.workload})
    prior = trial.prior if uses_prior(mechanism) else None
    return CodeRequest(spec, trial.rows.domain.attributes, trial.threads, prior_rows=prior, trial=trial)


OWN_METHODS = (
    Method(
        "default",
        "PrivSyn Flows",
        "what `privsyn release` does: the settings of the spec, by default this project's",
        "docs/algorithm.md",
        default,
    ),
    Method(
        "privsyn-paper",
        "PrivSyn (paper)",
        "the paper's settings: its accountant, split 0.1/0.1/0.8, cliques, 3-sigma compression, half duplication",
        PAPER,
        paper,
    ),
    Method(
        "independent",
        "Independent",
        "one-ways only, with the whole budget: every column on its own",
        "baseline",
        independent,
    ),
    Method(
        "mst",
        "MST",
        "the mechanism `mst`: one tree of pairs through all columns, from noisy scores; rows by sweeps",
        "McKenna et al., Winning the NIST Contest, JPC 2021",
        mst,
    ),
    Method(
        "mst-pgm",
        "MST, rows by PGM",
        "the mechanism `mst` with `rows_by: mbi`: a graphical model fitted by the package mbi, where it is installed",
        "McKenna et al., Graphical-model based estimation, ICML 2019",
        partial(mst, rows_by="mbi"),
    ),
    Method(
        "privbayes",
        "PrivBayes",
        "the mechanism `privbayes`: a Bayesian network from noisy scores, each column drawn given its parents",
        "Zhang et al., PrivBayes, SIGMOD 2014",
        privbayes,
    ),
    Method(
        "aim",
        "AIM over rows",
        "the mechanism `aim`: rounds that measure the few marginals in which the rows made so far are worst",
        "McKenna et al., AIM, PVLDB 2022",
        aim,
    ),
)
"""This project's methods, in the order in which they are shown."""
