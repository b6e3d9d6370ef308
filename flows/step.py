"""What a step is: its declaration, what it may know, and what it hands back.

Belongs here: the types that flows/steps.py fills in and flows/shell.py runs.  Does not belong here: any one
step, Prefect, files, the ledger, noise.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data_contracts.artifacts import Kind
from data_contracts.domain import Domain
from data_contracts.receipts import Pricing, Query
from data_contracts.spec import ReleaseSpec
from data_contracts.tables import TableContract
from flows.engines.base import Engine, StoredTable
from flows.engines.local import LocalEngine
from tasks import (
    compress_domain,
    noisy,
)
from tasks.codecs import EncodingPlan, plan
from tasks.kernels.counting import CodeTable, Countable
from tasks.privacy.accountant import pricing_of, rho_for

Batches = Iterable[pa.RecordBatch]
Progress = Callable[[int, int], None]

MEASURE = "measure_marginals"
MEASURE_AGAIN, SCORE_AGAIN = "measure_again_", "residual_scores_"
"""How the names of further rounds' release steps begin; the round's number, from 2, follows."""


def base_name(step: str) -> str:
    """The name of a step without the number of its round: ``measure_again_2`` -> ``measure_again``."""
    return step.rstrip("0123456789").rstrip("_")


@dataclass(frozen=True)
class Wide:
    """A wide output: its schema, its rows as a stream, and the profile its contract is checked on.

    ``parts``: rows of each file of a table that is written as a folder of files; empty: it is one file.
    """

    schema: pa.Schema
    batches: Batches
    profile: Callable[[Batches], pa.Table]
    parts: tuple[int, ...] = ()


Output: TypeAlias = pa.Table | Wide | Callable[[], pa.Table]
"""What a step makes: a long table, a wide one, or a table known only after the wide one has streamed."""


@dataclass(frozen=True)
class Request:
    """What every step may know: the public spec, what follows from it, and how to start a pass over the rows.

    ``shares``: release step -> its share of the budget, summing to 1; None: a release's, by the spec's ``split``.
    ``engine``: where stored rows are counted; no part of what is released.
    """

    spec: ReleaseSpec
    column_order: tuple[str, ...]
    rows: Callable[[], Batches]
    threads: int = 0
    unchanged: Callable[[], bool] = lambda: True
    shares: Mapping[str, Fraction] | None = None
    engine: Engine = field(default_factory=LocalEngine)

    @property
    def records(self) -> int:
        """Most records of one person."""
        return self.spec.unit.records

    @property
    def encoding(self) -> EncodingPlan:
        """The codecs of the spec, in the source's column order: the order in the spec means nothing."""
        return plan(self.spec, self.column_order)

    @property
    def pricing(self) -> Pricing:
        """How the noise of every release step is priced: for what the release's accountant proves."""
        return pricing_of(self.spec.accountant)

    def total_rho(self) -> Fraction:
        """The release's budget, in the accountant's pricing."""
        return rho_for(self.spec.privacy.epsilon, self.spec.privacy.delta, self.spec.accountant)

    def stage_rho(self, stage: str) -> Fraction:
        """Exact budget of a release step, by the step's name."""
        return self.total_rho() * (self._split() if self.shares is None else self.shares)[stage]

    def _split(self) -> dict[str, Fraction]:
        """A release's steps and their shares, those of further rounds included."""
        one_way, selection, measurement = self.spec.split.exact()
        parts = self.spec.adaptive.exact(measurement)
        split = {"one_way_marginals": one_way, "indif_scores": selection, MEASURE: parts.first}
        for number in range(2, self.spec.adaptive.rounds + 2):
            split[f"{SCORE_AGAIN}{number}"] = parts.scores
            split[f"{MEASURE_AGAIN}{number}"] = parts.measurement
        return split


class Inputs:
    """The tables that a step declared as its inputs, read when asked for."""

    def __init__(self, read: Mapping[str, Callable[[], Any]]) -> None:
        self._read = dict(read)

    def table(self, name: str) -> pa.Table:
        """A whole table; KeyError if the step did not declare it."""
        return self._read[name]()

    def batches(self, name: str) -> Batches:
        """A stream of batches; KeyError if the step did not declare it."""
        found = self.stored(name)
        return found.to_batches() if isinstance(found, pa.Table) else found.batches()

    def stored(self, name: str) -> pa.Table | StoredTable:
        """A table as it is held: in memory or in files; KeyError if the step did not declare it."""
        return self._read[name]()

    def recode(self) -> compress_domain.Recode:
        """The declared table ``recode``, parsed."""
        return compress_domain.recode_from_table(self.table("compress_domain.recode"))

    def refined(self, encoding: EncodingPlan) -> compress_domain.Recode:
        """The recoding with the measured one-ways pooled in."""
        return compress_domain.refined(self.recode(), *self.measured(), encoding.groups)

    def measured(self) -> tuple[list[Query], list[NDArray[Any]]]:
        """Queries and noisy answers of all declared rounds of measuring, each marginal once."""
        stages = [n.removesuffix(".receipts") for n in self._read if n.endswith(".receipts")]
        rounds = [stage for stage in stages if stage.startswith((MEASURE, MEASURE_AGAIN))]
        receipts = [self.table(f"{stage}.receipts") for stage in rounds]
        return noisy.all_measured(receipts, [self.table(f"{stage}.noisy") for stage in rounds])

    def domain(self) -> Domain:
        """The compressed domain."""
        return compress_domain.coarse_domain(self.recode())

    def noisy(self, stage: str) -> tuple[list[Query], list[NDArray[np.int64]]]:
        """Queries and noisy answers of an earlier release step."""
        queries = noisy.receipts_from_table(self.table(f"{stage}.receipts"))
        return queries, noisy.answers_from_table(self.table(f"{stage}.noisy"), queries)


@dataclass(frozen=True)
class Step:
    """One step: ``inputs`` are names ``step.table`` of earlier outputs; ``settings`` the spec's values it uses.

    ``version`` is raised by hand when the same inputs and settings would give another output; it is part
    of the cache key, so that an upgrade re-runs what changed and nothing else.
    """

    name: str
    title: str
    kind: Kind
    inputs: tuple[str, ...]
    outputs: Mapping[str, TableContract]
    settings: Callable[[Request], Any] = field(repr=False)
    run: Callable[[Request, Inputs, Progress], Mapping[str, Output]] | None = field(default=None, repr=False)
    version: int = 1

    @property
    def label(self) -> str:
        """Title and kind, as people read them: "Encode (transform)"."""
        return f"{self.title} ({self.kind})"

    def settings_json(self, request: Request) -> str:
        """The step's own settings as canonical JSON: part of its cache key."""
        return json.dumps(self.settings(request), sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class ReleaseStep(Step):
    """A release step never sees noise: it says what to ask (``plan``, public) and counts it (``exact``).

    The shell gives each planned query the noise that its price buys under the release's pricing (``Query.under``),
    draws it before the look, adds it, and publishes sums only.
    """

    plan: Callable[[Request, Inputs], list[Query]] = field(default=None, repr=False)  # type: ignore[assignment]
    exact: Callable[[Request, Inputs, Countable, list[Query]], Iterator[NDArray[np.int64]]] = field(  # type: ignore[assignment]
        default=None, repr=False
    )
    rows: str = ""
    rows_domain: Callable[[Request, Inputs], Domain] = field(default=None, repr=False)  # type: ignore[assignment]
    padded: bool = False

    def read_rows(self, request: Request, inputs: Inputs) -> Countable:
        """The private rows, to be counted: the look at the data."""
        return countable(request, inputs.stored(self.rows), self.rows_domain(request, inputs), padded=self.padded)


def countable(request: Request, stored: pa.Table | StoredTable, domain: Domain, *, padded: bool = False) -> Countable:
    """Rows of codes to be counted: by the request's engine, or here where they are in memory already."""
    if isinstance(stored, pa.Table):
        return CodeTable.from_arrow(stored, domain, padded=padded)
    return request.engine.rows(stored, domain, padded=padded)
