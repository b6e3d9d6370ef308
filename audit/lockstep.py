"""A release's noisy looks, in memory, at two neighbouring tables at once: what each look tells about the canary.

The attacker is the strongest there is: they know both tables and the code, and ask only which of the two was released.
Skipped, because it is not under test: files, contracts, ledger, Prefect, and all that follows the last look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.artifacts import LookKind, StepKind
from privsyn.data_contracts.domain import Clique
from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.inputs import Inputs, PrivateAccess
from privsyn.engine.request import Request
from privsyn.engine.step import ReleaseStep, RowStream, Step, release_steps
from privsyn.pipelines.common_steps import ENCODE
from privsyn.pipelines.registry import build_steps
from privsyn.tasks.estimation import noisy
from privsyn.tasks.estimation.noisy import Answers
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.privacy.noise import NoiseSource, OpenDPNoise

Tables = dict[str, pa.Table]
Questions = list[tuple[Clique, int]]

LAST_LOOK = "measure_marginals"
"""The look after which nothing is asked any more."""


@dataclass
class Transcript:
    """What one run showed.

    ``evidence``: statistic -> value, larger where it speaks for the canary: the log-likelihood ratio of each look's
    answers, ``all`` for their sum, and ``<look> asked`` for what the choice of its questions gives away: 1 where
    it is the one that the exact answers before it, of the table with the canary and of that table only, would have led
    to, -1 the other way round, else 0.  ``receipts``: the noise that was declared; ``asked``: look -> its questions.
    """

    evidence: dict[str, float] = field(default_factory=dict)
    asked: dict[str, Questions] = field(default_factory=dict)
    receipts: list[Query] = field(default_factory=list)


class Release:
    """Releases of one of two neighbouring tables of one spec; a planted fault overrides a method.

    ``pair``: the source tables without and with the canary.  ``tells``: whether to look for what the choice of
    questions gives away, which takes as long as all the rest.
    """

    tells = True

    def __init__(self, spec: ReleaseSpec, pair: tuple[pa.Table, pa.Table], noise: NoiseSource | None = None) -> None:
        self.spec, self.noise = spec, noise or OpenDPNoise()
        order = tuple(spec.released_columns)
        self.request = Request(spec, order, threads=1)
        steps = build_steps(self.request)
        last = [step.name for step in steps].index(LAST_LOOK)
        looks = release_steps(steps)
        self.looks = tuple(step.name for step in looks)
        shares = self.shares({step.name: step.share for step in looks})
        self.steps = tuple(replace(step, shares=shares) for step in steps[1 : last + 1])  # the first one encodes
        self.encoded = [
            make_tables(ENCODE, self.request, Inputs({}, PrivateAccess(lambda _=None, t=t: t.to_batches())))
            for t in pair
        ]
        self.after_the_first_look: dict[str, list[Questions]] = {}

    def shares(self, declared: Mapping[str, Fraction]) -> Mapping[str, Fraction]:
        """Return each look's share of rho, by its name."""
        return declared

    def draw(self, sigma: float, cells: int) -> NDArray[np.int64]:
        """Return the noise of ``cells`` counts."""
        return self.noise.draw(sigma, cells)

    def handed_on(self, look: str, answers: Answers, exact: Answers) -> Answers:
        """Return the answers of a look that later steps work with: those with noise, which are the published ones."""
        return answers

    def run(self, canary: bool) -> Transcript:
        """Return one release of the table with the ``canary`` or of the one without, as far as its last look."""
        run = _Run(self, canary)
        for step in self.steps:
            if isinstance(step, ReleaseStep):
                run.look(step)
            else:
                run.plain(step)
        run.transcript.evidence["all"] = sum(run.transcript.evidence[name] for name in self.looks)
        return run.transcript


def gather_evidence(
    release: Release, runs: int
) -> tuple[dict[str, NDArray[np.float64]], dict[str, NDArray[np.float64]]]:
    """Return statistic -> its value in each of ``runs`` independent runs, without and with the canary."""
    sides = []
    for canary in (False, True):
        results = [release.run(canary).evidence for _ in range(runs)]
        sides.append({name: np.array([one[name] for one in results]) for name in results[0]})
    return sides[0], sides[1]


class _Run:
    """One run's tables: ``public`` ones, ``private`` ones of both sides, and what exact answers would have made."""

    def __init__(self, release: Release, canary: bool) -> None:
        self.release, self.canary, self.transcript = release, canary, Transcript()
        self.public = _Inputs({})
        self.private = [_Inputs(tables) for tables in release.encoded]
        self.instead: list[Tables] = [{}, {}]  # the tables since the last look, had it been answered exactly
        self.chain: list[Step] = []  # the post-processing since the last look

    def plain(self, step: Step) -> None:
        """Run a transform on both sides, post-processing once on public tables only."""
        if step.kind is StepKind.TRANSFORM:
            for side in self.private:
                side.add(self._make(step, self.public.joined(side)))
        else:
            self.public.add(self._make(step, self.public))
            self.chain.append(step)

    def _make(self, step: Step, inputs: _Inputs) -> Tables:
        return make_tables(step, self.release.request, step.lend(self.release.request, inputs))

    def look(self, step: ReleaseStep) -> None:
        """Ask, count on both sides, add noise to the counts of the table that is released."""
        request = self.release.request
        planned = step.plan(request, step.lend(request, self.public), step.rho(request))
        queries = [query.under(request.pricing) for query in planned]
        self.transcript.asked[step.name] = _questions(queries)
        self.transcript.evidence[f"{step.name} asked"] = self._tell(step) if self.release.tells else 0.0
        exact = [self._exact(step, queries, side) for side in (0, 1)]
        truth = exact[self.canary]
        answers = [count + noise for count, noise in zip(truth, self._draws(queries), strict=True)]
        ratio = compute_log_likelihood_ratio(answers, exact[0], exact[1], queries)
        self.transcript.evidence[step.name] = float(ratio)
        self.transcript.receipts += queries
        handed_on = self.release.handed_on(step.name, answers, truth)
        self.public.add({f"{step.name}.receipts": noisy.tabulate_receipts(queries)})
        self.public.add({f"{step.name}.noisy": noisy.tabulate_answers(handed_on)})
        self.instead, self.chain = [{f"{step.name}.noisy": noisy.tabulate_answers(e)} for e in exact], []

    def _draws(self, queries: Sequence[Query]) -> Answers:
        """Return independent noise for every cell, as in a release."""
        return noisy.draw_for_queries(
            queries, lambda asked: [self.release.draw(sigma, cells) for sigma, cells in asked]
        )

    def _exact(self, step: ReleaseStep, queries: list[Query], side: int) -> Answers:
        request = self.release.request
        inputs = step.lend(request, self.public.joined(self.private[side]))
        return list(step.exact(request, inputs, step.read_rows(request, inputs), queries))

    def _tell(self, step: ReleaseStep) -> float:
        """Return what the questions of ``step`` give away of the exact answers to the look before it."""
        if not self.chain:
            return 0.0
        known = self.release.after_the_first_look if len(self.transcript.asked) == 2 else {}  # the same in every run
        if step.name not in known:
            known[step.name] = [self._would_ask(step, instead) for instead in self.instead]
        without, with_canary = (would == self.transcript.asked[step.name] for would in known[step.name])
        return float(with_canary) - float(without)

    def _would_ask(self, step: ReleaseStep, instead: Tables) -> Questions:
        """Return the questions of ``step``, had the look before it been answered so."""
        request, inputs = self.release.request, self.public.joined(_Inputs(instead))
        for earlier in self.chain:
            inputs.add(self._make(earlier, inputs))
        return _questions(step.plan(request, step.lend(request, inputs), step.rho(request)))


class _Inputs(Inputs):
    """Tables in memory, each parsed once."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        super().__init__({})
        self.tables, self.parsed = dict(tables), dict[str, Recode]()

    def with_looks(self, looks: Mapping[LookKind, tuple[str, ...]], rho: Mapping[str, Fraction]) -> Inputs:
        self._looks, self.rho = looks, rho
        return self

    def add(self, tables: Mapping[str, pa.Table]) -> None:
        """Add tables, in place of those of the same name."""
        self.tables.update(tables)
        if "compress_domain.recode" in tables:
            self.parsed.clear()

    def joined(self, other: _Inputs) -> _Inputs:
        """Return the tables of both; those of ``other`` go before."""
        both = _Inputs({**self.tables, **other.tables})
        if "compress_domain.recode" not in other.tables:
            both.parsed = self.parsed
        return both

    def table(self, name: str) -> pa.Table:
        return self.tables[name]

    def stored(self, name: str) -> pa.Table:
        return self.tables[name]

    def batches(self, name: str) -> list[pa.RecordBatch]:
        return list(self.tables[name].to_batches())

    def recode(self) -> Recode:
        if "recode" not in self.parsed:
            self.parsed["recode"] = super().recode()
        return self.parsed["recode"]


def compute_log_likelihood_ratio(
    answers: Sequence[NDArray[np.int64]],
    without: Sequence[NDArray[np.int64]],
    with_canary: Sequence[NDArray[np.int64]],
    queries: Sequence[Query],
) -> NDArray[np.float64]:
    """Return ln P(answers | with the canary) - ln P(answers | without), under noise of the declared sigmas.

    ``answers``: of shape (cells,), or (runs, cells) of several runs; the ratio has shape () or (runs,).
    """
    total = np.float64(0)
    for y, a, b, query in zip(answers, without, with_canary, queries, strict=True):
        total = total + ((y - a) ** 2 - (y - b) ** 2).sum(axis=-1) / (2 * query.sigma**2)
    return np.asarray(total)


def _questions(queries: Sequence[Query]) -> Questions:
    return sorted((q.attributes, q.cells) for q in queries)


def make_tables(step: Step, request: Request, inputs: Inputs) -> Tables:
    """Return tables that a step makes, but the counts of repairs, which are known only after the rows have streamed."""
    if step.run is None:
        raise TypeError(f"{step.name} has nothing to run")
    outputs = step.run(request, inputs, lambda done, total: None)
    tables = {}
    for name, output in outputs.items():
        if isinstance(output, RowStream):
            tables[f"{step.name}.{name}"] = pa.Table.from_batches(list(output.batches), output.schema)
        elif isinstance(output, pa.Table):
            tables[f"{step.name}.{name}"] = output
    return tables
