"""The methods that are this project's mechanisms, and what runs the steps of any method on rows of codes.

A test holds the method ``default`` to a release: the same
noise gives the same rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import pyarrow as pa

from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import LookKind
from privsyn.data_contracts.columns import BooleanColumn
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.mechanism_options import Aim, AnyMechanism, Independent, Mst, PrivBayes, PrivSyn
from privsyn.data_contracts.prior import uses_prior
from privsyn.data_contracts.promise import Guarantee, Unit
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.step_options import Rows, Synthesis
from privsyn.engine.inputs import Inputs
from privsyn.engine.memory import DrawNoise, MemoryRun
from privsyn.engine.request import Request
from privsyn.engine.step import Output, Progress, Step
from privsyn.engine.step_list import connect, list_looks
from privsyn.evaluation.comparison.method import MethodInput, MethodResult
from privsyn.pipelines.common_steps import ENCODE
from privsyn.pipelines.registry import build_steps
from privsyn.tasks.codecs.binning import Binning
from privsyn.tasks.estimation.recode import build_coarse_domain
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.steps import decode
from privsyn.tasks.synthesis.related_places import fit_related_places

Steps = tuple[Step, ...]


def default(trial: MethodInput) -> MethodResult:
    """Return what a release does, by the trial's own settings."""
    request = request_of(trial, trial.settings.mechanism)
    return run_steps(trial, request, build_steps(request))


def paper(trial: MethodInput) -> MethodResult:
    """Return the paper's settings."""
    return default(apply_paper_options(trial))


def independent(trial: MethodInput) -> MethodResult:
    """Measure one-ways only, with the whole budget."""
    mechanism = trial.settings.mechanism
    request = request_of(trial, Independent(compression=mechanism.compression, synthesis=_get_row_settings(mechanism)))
    return run_steps(trial, request, build_steps(request))


def mst(trial: MethodInput, rows_by: Literal["sweeps", "mbi"] = "sweeps") -> MethodResult:
    """Return the mechanism ``mst``, with the trial's compression.

    Raises ModuleNotFoundError where mbi is not installed.
    """
    mechanism = trial.settings.mechanism
    rows = Synthesis(**_get_row_settings(mechanism).model_dump())
    request = request_of(trial, Mst(compression=mechanism.compression, rows_by=rows_by, synthesis=rows))
    return run_steps(trial, request, build_steps(request))


def privbayes(trial: MethodInput) -> MethodResult:
    """Return the mechanism ``privbayes``, with the trial's compression."""
    mechanism = trial.settings.mechanism
    request = request_of(trial, PrivBayes(compression=mechanism.compression, synthesis=_get_row_settings(mechanism)))
    return run_steps(trial, request, build_steps(request))


def aim(trial: MethodInput) -> MethodResult:
    """Return the mechanism ``aim``, by the trial's options of it, or its compression."""
    request = request_of(trial, choose_aim(trial.settings.mechanism))
    return run_steps(trial, request, build_steps(request))


def choose_aim(mechanism: AnyMechanism) -> Aim:
    """Return the options of ``aim`` if they are those, else its own with the compression and rows of others."""
    if isinstance(mechanism, Aim):
        return mechanism
    rows = Synthesis(**_get_row_settings(mechanism).model_dump())
    return Aim(compression=mechanism.compression, synthesis=rows)


def _get_row_settings(options: AnyMechanism) -> Rows:
    """Return how many rows the options ask for, and their seed."""
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
            pa.RecordBatch.from_arrays(
                [pa.array(part[f.name].astype(f.type.to_pandas_dtype())) for f in schema], schema=schema
            )
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

    ``codecs``, ``differences``, ``on_ladder``, ``uncut``: none, as no column is read or cut, and no two are compared.
    """

    domain: Domain
    binning: Binning
    codecs: tuple[()] = ()
    differences: tuple[()] = ()
    on_ladder: tuple[()] = ()
    uncut: None = None

    def attributes_of(self, columns: Collection[str]) -> tuple[str, ...]:
        """Return the attributes of these columns: each column is one attribute."""
        return tuple(a for a in self.domain.attributes if a in columns)

    def list_attributes_within(self, columns: Collection[str]) -> tuple[str, ...]:
        """Return the attributes that follow from these columns alone: each column is one attribute."""
        return self.attributes_of(columns)

    def labels(self) -> dict[str, list[str]]:
        """Return the labels of every attribute: each code is its own."""
        return {
            a: [str(code) for code in range(size)]
            for a, size in zip(self.domain.attributes, self.domain.sizes, strict=True)
        }


@dataclass(frozen=True)
class CodeRequest(Request):
    """The public request of a trial, whose rows come as codes."""

    trial: MethodInput | None = None

    @cached_property
    def encoding(self) -> CodeEncoding:  # type: ignore[override]
        """The trial's domain and bins."""
        assert self.trial is not None  # noqa: S101 - always given
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
