"""Comparing methods: several methods x epsilons x seeds on one table, each table scored by the same metrics.

Not a release: the noise has a seed and the figures are exact functions of the real rows.  So nothing is charged to
the ledger and nothing is written outside ``private/compare/``.  It is for data that is public or stays where it is.

Methods are known by the names that people type.  A package adds methods by an entry point of the group
``privsyn.methods``: a sequence of methods.  The methods of other papers come from privsyn/extras/papers.
"""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from privsyn.base.errors import RequestError, locate_error
from privsyn.base.registry import load_parts
from privsyn.base.settings import Settings
from privsyn.base.telemetry import Telemetry
from privsyn.data_contracts.evaluation import ComparedMethod, Comparison, EvaluationSpec, MethodRun, Metric
from privsyn.data_contracts.promise import Guarantee
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.plan import account_rho
from privsyn.engine.policy_checks import check_public_inputs, check_table
from privsyn.evaluation.coded_tables import CodedTable, encode_table, open_table
from privsyn.evaluation.comparison.method import (
    OWN_METHODS,
    DomainTooLargeError,
    Method,
    MethodInput,
    MethodSettings,
    spread_evenly,
)
from privsyn.evaluation.comparison.results import format_markdown
from privsyn.sources.open_source import open_source
from privsyn.specs.public_files import read_public_rows
from privsyn.storage.disk import replace_file, translate_os_errors
from privsyn.storage.released_root import get_roots, locate_private_folder
from privsyn.tasks.codecs import EncodingPlan, plan_every_column
from privsyn.tasks.codecs.encode_rows import Repairs
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.privacy.noise import SeededNoise
from privsyn.tasks.steps.encode import encode

_OWN_NAMES = {method.name for method in OWN_METHODS}
METHODS = {
    method.name: method
    for method in (
        *OWN_METHODS,
        *(m for part in load_parts("methods").values() for m in part if m.name not in _OWN_NAMES),
    )
}
"""Every method by its name, in the order in which they are shown."""

DEFAULT_METHODS = ("default", "privsyn-paper", "independent")
DEFAULT_EPSILONS = (0.2, 1.0, 2.0)
MOST_SEEDS = 1_000
EQUAL_CELLS = (
    "All methods count in the same cells, equal ones between the bounds where the spec gives none: no method takes a "
    "release's first look at wide bounds."
)
WARM_UP_ROWS = 2_000
"""Rows of the discarded run that compiles a method's kernels before its time is taken."""

Score = Callable[[CodedTable], tuple[Metric, ...]]
Report = Callable[[str, int, int], None]
"""Called with (what is running, runs done, runs in all)."""


@dataclass(frozen=True)
class AskedComparison:
    """A request to compare methods.

    The spec names the table, the columns, delta and the settings of the method ``default``.

    ``seeds``: number of repetitions, with the seeds 0, 1, ...; holdout: path of real rows that no method sees.
    """

    spec: ReleaseSpec
    methods: Sequence[str] = DEFAULT_METHODS
    epsilons: Sequence[float] = DEFAULT_EPSILONS
    seeds: int = 3
    holdout: str | None = None
    evaluation: EvaluationSpec = field(default_factory=EvaluationSpec)

    def check(self) -> None:
        """Raise RequestError that names the argument, before anything is read."""
        for name in self.methods:
            if name not in METHODS:
                raise RequestError(
                    f"there is no method {name!r}", f"Known are {', '.join(METHODS)}, and `all`", "comparison.methods"
                )
        for epsilon in self.epsilons:
            if not (math.isfinite(epsilon) and 0 < epsilon <= 1e6):
                raise RequestError(
                    f"{epsilon:g} is not above 0 and at most 1,000,000", "Correct it", "comparison.epsilons"
                )
            promise = Guarantee(epsilon=epsilon, delta=self.spec.privacy.delta)
            account_rho(promise, "comparison.epsilons", self.spec.effective_accountant)
        for values, field_, noun in (
            (self.methods, "comparison.methods", "method"),
            (self.epsilons, "comparison.epsilons", "epsilon"),
        ):
            if not values:
                raise RequestError(f"names no {noun}", f"Name at least one {noun}", field_)
            if len(set(values)) < len(values):
                raise RequestError(f"names one {noun} twice", "Take one of them out", field_)
        if not 1 <= self.seeds <= MOST_SEEDS:
            raise RequestError(f"{self.seeds} is not from 1 to {MOST_SEEDS:,}", "Correct it", "comparison.seeds")
        labels = () if self.evaluation.labels == "auto" else self.evaluation.labels
        for label in labels:
            if label not in self.spec.released_columns:
                raise RequestError(
                    f"the spec releases no column {label!r}", "Name one that it releases", "comparison.labels"
                )
            if label in self.spec.unmeasured_columns:
                raise RequestError(f"the column {label!r} is not measured", "Name one that is", "comparison.labels")


@dataclass(frozen=True)
class Compared:
    """A finished comparison and the private folder that holds it.  PRIVATE: do not share.

    Privacy: ``results`` and the folder's files have exact functions of the real rows; printing it shows none.
    """

    folder: Path
    results: Comparison


def compare(
    asked: AskedComparison,
    settings: Settings,
    report: Report = lambda what, done, total: None,
    only: Sequence[str] | None = None,
) -> Compared:
    """Run and score every method at every epsilon with every seed, and write results, table and plots.

    ``only``: names of the metrics wanted (privsyn/evaluation/scores.py), None for all.  A method that is not
    installed or fails is reported as such and stops nothing.  Raises RequestError (exit 2) for a wrong request.
    """
    from privsyn.evaluation.scores import check_packages

    check_packages()
    get_roots(settings.private_root, settings.released_root)
    for table, argument in ((asked.spec.place, "data"), (asked.holdout, "comparison.holdout")):
        if table is not None:
            check_table(asked.spec.dataset, table, settings, argument)
    check_public_inputs(asked.spec, settings)
    dataset = asked.spec.dataset
    with Telemetry(settings).observe(dataset, dataset, "comparison"):
        results = run_all(asked, settings.threads, report, only)
        return Compared(_write(results, settings), results)


def run_all(
    asked: AskedComparison, threads: int, report: Report = lambda *_: None, only: Sequence[str] | None = None
) -> Comparison:
    """Return the comparison without its files; arguments and errors as :func:`compare`."""
    asked.check()
    spec = asked.spec
    if spec.cells is None:  # the methods start from common codes, so none can choose its cells by a first look
        spec = spec.without_ladder()
    source = open_source(spec.place, spec)
    encoding = plan_every_column(spec, tuple(c for c in source.columns if c in spec.released_columns))
    holdout = None
    if asked.holdout is not None:
        holdout = open_table(asked.holdout, encoding, spec, "comparison.holdout").read()
    rows = CodeTable.from_arrow(list(encode(source.batches, encoding, spec.unit, Repairs())), encoding.domain)
    real = encode_table(source.batches(), encoding)

    def score(table: CodedTable) -> tuple[Metric, ...]:
        from privsyn.evaluation.scores import Scorer

        # a scorer of its own for every table: it remembers tables by identity
        return Scorer(real, holdout, encoding, asked.evaluation, threads).score(table, only)

    methods = [METHODS[name] for name in asked.methods]
    runs = tuple(_iterate_runs(asked, methods, rows, encoding, threads, score, report))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Comparison(
        dataset=spec.dataset,
        rows_real=real.bins.rows,
        rows_holdout=None if holdout is None else holdout.bins.rows,
        columns=encoding.domain.attributes,
        delta=spec.privacy.delta,
        unit_of_protection=spec.unit.describe(),
        cells=EQUAL_CELLS if spec.cells is None else f"All methods count in the cells of {spec.cells.run}.",
        settings=asked.evaluation,
        machine=f"{cores} cores, {platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}",
        methods=tuple(
            ComparedMethod(name=m.name, title=m.title, description=m.description, source=m.source, private=m.private)
            for m in methods
        ),
        epsilons=tuple(asked.epsilons),
        seeds=asked.seeds,
        runs=runs,
    )


def _iterate_runs(
    asked: AskedComparison,
    methods: Sequence[Method],
    rows: CodeTable,
    encoding: EncodingPlan,
    threads: int,
    score: Score,
    report: Report,
) -> Iterator[MethodRun]:
    spec, done = asked.spec, 0
    total = len(methods) * len(asked.epsilons) * asked.seeds
    public = None if spec.prior is None else read_public_rows(spec, encoding)
    few = CodeTable(rows.domain, tuple(c[:WARM_UP_ROWS].copy() for c in rows.columns))

    def trial(table: CodeTable, epsilon: float, seed: int) -> MethodInput:
        return MethodInput(
            rows=table,
            binning=encoding.binning,
            epsilon=epsilon,
            delta=spec.privacy.delta,
            records=spec.unit.records,
            noise=SeededNoise(seed),
            seed=seed,
            threads=threads,
            settings=MethodSettings.of(spec),
            prior=public,
        )

    for method in methods:
        run_method(method, trial(few, asked.epsilons[0], 0), lambda table: ())  # compiles kernels; discarded
        for epsilon in asked.epsilons:
            for seed in range(asked.seeds):
                report(f"{method.name} at epsilon {epsilon:g}", done, total)
                yield run_method(method, trial(rows, epsilon, seed), score)
                done += 1
    report("done", total, total)


def run_method(method: Method, trial: MethodInput, score: Score) -> MethodRun:
    """Return one run: its wall time, its receipts held against the promise, its scores.

    Never an exception of the method.
    """
    describe = partial(MethodRun, method=method.name, epsilon=trial.epsilon, seed=trial.seed)
    started = time.perf_counter()
    try:
        result = method.run(trial)
    except ImportError as error:
        return describe(outcome="not installed", note=f"needs the package {error.name}")
    except DomainTooLargeError as error:
        return describe(outcome="did not fit", note=str(error))
    except (TimeoutError, MemoryError) as error:
        return describe(outcome="did not finish", note=type(error).__name__)
    except Exception as error:
        return describe(outcome="failed", note=f"{type(error).__name__} at {locate_error(error)}")
    seconds = time.perf_counter() - started
    spent = result.epsilon(trial.delta) if result.zcdp or result.pure or result.choices else None
    if spent is not None and spent > trial.epsilon:
        return describe(outcome="failed", note=f"its receipts cost epsilon {spent:.6g}")
    fine = result.fine if result.fine is not None else spread_evenly(result.table, trial.binning, trial.seed)
    return describe(
        outcome="done",
        seconds=seconds,
        rows=result.table.rows,
        marginals=result.marginals,
        receipts_epsilon=spent,
        metrics=score(CodedTable(fine, result.table)),
    )


def _write(results: Comparison, settings: Settings) -> Path:
    """Write results.json, table.md and the plots, in a new folder ``private/compare/<dataset>-<number>/``."""
    from privsyn.base.pictures import draw_chart
    from privsyn.evaluation.comparison.results import build_chart  # here: drawing packages load slowly

    plots = build_chart(results)
    contents = {
        "results.json": (results.model_dump_json(indent=1) + "\n").encode(),
        "table.md": format_markdown(results).encode(),
        "plot.svg": draw_chart(plots, "svg"),
        "plot.png": draw_chart(plots, "png"),
    }
    folder = _make_new_folder(locate_private_folder(settings, "compare"), results.dataset)
    with translate_os_errors(folder):
        for name, content in contents.items():
            with replace_file(folder / name) as temporary:
                temporary.write_bytes(content)
    return folder


def _make_new_folder(parent: Path, dataset: str) -> Path:
    with translate_os_errors(parent):
        number = 1
        while True:
            folder = parent / f"{dataset}-{number}"
            try:
                folder.mkdir(mode=0o700)
            except FileExistsError:
                number += 1
            else:
                return folder
