"""Record and replay by dp-recorder (Re:cord-play, arXiv 2602.17454), on every case of the referee.

dp-recorder records each noisy answer of one release, hands the same answers to a release of a neighbour, and compares
what the two were asked.  Here are only the places at which it is told of an answer, of a question and of a table.
Every comparison, price and statistic is its own.  This project holds none of its code (docs/audit.md: how to install
it).

Other than in the referee, all steps run again on the neighbour, with post-processing.  Post-processing is handed the
private tables that it declares, so that dp-recorder has to find a step that reads one.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import stats

from audit.lockstep import make_tables
from audit.planted_faults import Fault, ScaledNoise
from audit.referee import Other, Relation
from audit.referee_cases import Case
from audit.referee_tables import Effort, list_others
from privsyn.data_contracts.artifacts import StepKind
from privsyn.engine.inputs import Inputs, PrivateAccess
from privsyn.engine.plan import Plan
from privsyn.engine.step import ReleaseStep, Step
from privsyn.tasks.estimation import noisy
from privsyn.tasks.privacy.accountant import convert_rho_to_epsilon
from privsyn.tasks.privacy.noise import NoiseSource, OpenDPNoise

KIND = "discrete Gaussian"
GRID = 1e-4
"""Width of the grid of dp-recorder's privacy losses, as a share of the epsilon that is claimed."""

SAMPLED_CELLS = 300
"""Cells of the largest answer that is drawn again and again."""

REPLAY, SENSITIVITY, ERROR = "replay", "sensitivity", "error"


def load_harness() -> Any:
    """Return dp-recorder's module of hooks; ModuleNotFoundError where it is not installed."""
    return importlib.import_module("dp_recorder.auditing.audit_primitives")


@dataclass
class Recording:
    """What dp-recorder said of one case.

    ``findings``: check -> its first message; ``replayed``: neighbours; ``answers``: noisy answers that were recorded;
    ``looks``: look -> the largest distance between two true answers, as a share of the declared sensitivity;
    ``epsilon``: its own composition of all answers at the promise's delta; ``claimed``: that of the request's price;
    ``sampled``: look -> the mu that its samples prove, as a share of the declared one.
    """

    claimed: float
    findings: dict[str, str] = field(default_factory=dict)
    replayed: int = 0
    answers: int = 0
    looks: dict[str, float] = field(default_factory=dict)
    epsilon: float = 0.0
    sampled: dict[str, float] = field(default_factory=dict)

    @property
    def passes_claim(self) -> bool:
        """Whether the composed price is above the promise."""
        return self.epsilon > self.claimed

    @property
    def passes_samples(self) -> bool:
        """Whether samples prove more than an answer declares."""
        return max(self.sampled.values(), default=0.0) > 1


class Hooks:
    """The places at which dp-recorder is told of one release: answers, questions and tables.

    ``trusted``: whether the noise has the declared scale, so that dp-recorder composes prices; else it draws samples.
    """

    def __init__(self, case: Case, harness: Any, steps: Sequence[Step], noise: NoiseSource, trusted: bool) -> None:
        self.case, self.harness, self.steps, self.noise = case, harness, steps, noise
        metrics = importlib.import_module("dp_recorder.auditing.metrics")
        account = partial(_build_loss_distribution, case.spec.privacy.epsilon) if trusted else None
        announce = harness.audit_spec(KIND, "counts", "sensitivity", metrics.dist_l2, account)
        self.answer: Callable[..., NDArray[np.int64]] = announce(self._add_noise)

    def _add_noise(
        self, counts: NDArray[np.int64], sensitivity: int, sigma: float, look: str, attributes: tuple[str, ...]
    ) -> NDArray[np.int64]:
        """Return counts with noise: the primitive that dp-recorder watches."""
        return counts + self.noise.draw(sigma, len(counts))

    def release(self, tables: Any, batch_rows: int | None = None) -> None:
        """Release tables as far as the last look."""
        request, made = self.case.make_request(tables), dict[str, pa.Table]()
        plan, private = Plan(request, tuple(self.steps)), self.case.open_rows(tables, batch_rows)
        last = max(place for place, step in enumerate(plan.steps) if isinstance(step, ReleaseStep))
        for step in plan.steps[: last + 1]:
            if isinstance(step, ReleaseStep):
                made |= self._look(plan, step, made, private)
                continue
            outputs = make_tables(step, *step.open(request, _read(step, made, private)))
            if step.kind is StepKind.POSTPROCESS:
                self._hold_equal(**{name: _hash(table) for name, table in outputs.items()})
            made |= outputs
        self._hold_equal(end=True)

    def _look(
        self, plan: Plan, step: ReleaseStep, made: Mapping[str, pa.Table], private: PrivateAccess
    ) -> dict[str, pa.Table]:
        """Return the receipts and noisy answers of one look."""
        queries = plan.queries(step, _read(step, made, private))
        self._hold_equal(**{step.name: [(q.attributes, q.cells, q.sensitivity, q.sigma) for q in queries]})
        answers = []
        if queries:
            request, inputs = step.open(plan.request, _read(step, made, private))
            exact = step.exact(request, inputs, step.read_rows(request, inputs), queries)
            for query, counts in zip(queries, exact, strict=True):
                asked = {"sensitivity": query.sensitivity, "sigma": query.sigma, "attributes": query.attributes}
                answers.append(self.answer(counts=np.asarray(counts), look=step.name, **asked))
        receipts, tabled = noisy.tabulate_receipts(queries), noisy.tabulate_answers(answers)
        return {f"{step.name}.receipts": receipts, f"{step.name}.noisy": tabled}

    def _hold_equal(self, **values: Any) -> None:
        """Tell dp-recorder what may not differ between the two releases."""
        for name, value in values.items():
            self.harness.ensure_equality(**{name: value})


def _read(step: Step, made: Mapping[str, pa.Table], private: PrivateAccess) -> Inputs:
    """Return all inputs that a step declares, private ones too."""
    access = private if step.encodes else private.without_source()
    return Inputs({name: partial(made.__getitem__, name) for name in step.inputs if name in made}, access)


def _hash(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return hashlib.sha256(sink.getvalue()).hexdigest()


def _build_loss_distribution(epsilon: float, sensitivity: int, sigma: float, **_: Any) -> Any:
    """Return the Gaussian's privacy loss distribution, which dp-recorder composes."""
    losses = importlib.import_module("dp_accounting.pld.privacy_loss_distribution")
    return losses.from_gaussian_mechanism(sigma, sensitivity, value_discretization_interval=GRID * epsilon)


def record_case(
    case: Case, effort: Effort, noise: NoiseSource, seed: int = 0, samples: int = 0, fault: Fault | None = None
) -> Recording:
    """Return what dp-recorder finds where one table is recorded and its neighbours are replayed.

    ``samples``: draws of each look's smallest answer that moved, of both tables together; 0: none are drawn.
    """
    harness, tables = load_harness(), case.make(case.few * effort.size, seed)
    request, delta = case.make_request(tables), case.spec.privacy.delta
    result = Recording(convert_rho_to_epsilon(request.total_rho, delta, case.spec.effective_accountant))
    steps = list(case.build(request))
    if fault is not None:
        steps, noise = list(fault.change(steps)), ScaledNoise(noise, fault.noise)
    others = [o for o in list_others(tables, case.structure, effort, seed) if o.relation is Relation.NEIGHBOUR]
    hooks, auditor = Hooks(case, harness, steps, noise, trusted=not samples), harness.Auditor()
    with auditor:
        hooks.release(tables)
    entries = [entry for entry in auditor.log if entry.kind == KIND]
    result.answers, result.looks = len(entries), dict.fromkeys((e.params["look"] for e in entries), 0.0)
    moving: dict[str, Any] = {}
    for other in others:
        _replay(hooks, auditor, other, result)
        for look, share, entry in _list_distances(entries):
            if share > result.looks[look] or (share == result.looks[look] and _is_smaller(entry, moving.get(look))):
                result.looks[look], moving[look] = share, copy(entry)
    if samples:
        _draw_samples(auditor, moving, samples, result)
    elif auditor.compute_overall_pld() is not None:
        result.epsilon = float(auditor.get_overall_current_guarantee(delta))
    return result


def _replay(hooks: Hooks, auditor: Any, other: Other, result: Recording) -> None:
    """Replay the release on another table, and note the first message of each check."""
    for entry in auditor.log:
        entry.inputs_dp = None
    auditor.set_replay()
    result.replayed += 1
    try:
        with auditor:
            hooks.release(other.data, other.batch_rows)
    except (AssertionError, RuntimeError) as error:
        result.findings.setdefault(REPLAY, f"{other.name}: {_shorten(error)}")
    except (LookupError, ValueError) as error:
        result.findings.setdefault(ERROR, f"{other.name}: {type(error).__name__}: {_shorten(error)}")
    try:
        auditor.validate_records()
    except AssertionError as error:
        result.findings.setdefault(SENSITIVITY, f"{other.name}: {_shorten(error)}")
    except ValueError as error:
        result.findings.setdefault(ERROR, f"{other.name}: {type(error).__name__}: {_shorten(error)}")


def _shorten(error: BaseException) -> str:
    return re.sub(r"\s+", " ", str(error))[:160]


def _list_distances(entries: Sequence[Any]) -> Iterator[tuple[str, float, Any]]:
    """Yield look, distance as a share of the declared sensitivity, and entry of each answer that was replayed."""
    for entry in entries:
        pair = [inputs["counts"] for inputs in (entry.inputs_d, entry.inputs_dp) if inputs is not None]
        if len(pair) == 2 and pair[0].shape == pair[1].shape:
            yield entry.params["look"], float(entry.metric_fn(*pair)) / entry.sensitivity_val, entry


def _is_smaller(entry: Any, other: Any) -> bool:
    return other is None or len(entry.inputs_d["counts"]) < len(other.inputs_d["counts"])


def _draw_samples(auditor: Any, moving: Mapping[str, Any], samples: int, result: Recording) -> None:
    """Have dp-recorder draw the chosen answer of each look, and read its two error rates as a bound on mu."""
    chosen = {look: e for look, e in moving.items() if 0 < len(e.inputs_d["counts"]) <= SAMPLED_CELLS}
    auditor.log = list(chosen.values())
    auditor.run_distributional_audit(n_samples=samples)
    for look, entry in chosen.items():
        false_positives, false_negatives = entry.tradeoff_curve[1] if len(entry.tradeoff_curve) == 3 else (0.5, 0.5)
        mu = -stats.norm.ppf(false_positives) - stats.norm.ppf(false_negatives)
        result.sampled[look] = float(mu) * entry.params["sigma"] / entry.params["sensitivity"]


def record_fault(fault: Fault, effort: Effort, samples: int, case: Case) -> tuple[Recording, Recording]:
    """Return what dp-recorder says of a planted fault: with trusted noise, and from samples."""
    with fault.plant(case):
        trusted = record_case(case, effort, OpenDPNoise(), fault=fault)
        return trusted, record_case(case, Effort(2, 0), OpenDPNoise(), samples=samples, fault=fault)
