"""The private evaluation: compare a release with its private table and write one private report.

Nothing here is a release.  Every figure is a function of the private rows; it is written only to
``private/reports/<run>/``, and never to a message, log or exception.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from privsyn.base.settings import Settings
from privsyn.base.telemetry import Telemetry
from privsyn.data_contracts.evaluation import Evaluation, EvaluationSpec, MisreadColumn, PanelFigure, TableScores
from privsyn.engine.policy_checks import check_table
from privsyn.evaluation import details
from privsyn.evaluation.analysis_figures import check_analyses, run_analyses
from privsyn.evaluation.coded_tables import CodedTable, EvaluatedRelease, OpenTable, open_release, open_table
from privsyn.evaluation.column_statistics import compute_column_statistics
from privsyn.evaluation.details import ColumnReading, add_misread, describe_misread, list_broken_rules
from privsyn.evaluation.linked_figures import compute_panel_figures, compute_table_pair_figures
from privsyn.evaluation.report.page import render
from privsyn.evaluation.scores import Scorer, check_packages
from privsyn.evaluation.settings_file import check_settings
from privsyn.pipelines.budget import share_trends
from privsyn.pipelines.registry import plan_release
from privsyn.sources.private_table import Table
from privsyn.storage.disk import replace_file, translate_os_errors
from privsyn.storage.released_root import get_roots, locate_private_folder
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.metrics.marginal_distance import average_l1, list_all_cliques

Result = TypeVar("Result")
RunStage = Callable[[str, Callable[[], Result]], Result]
"""Runs one named stage of the evaluation; the flow makes it a Prefect task."""

REPORT, FIGURES = "report.html", "evaluation.json"


@dataclass(frozen=True)
class AskedEvaluation:
    """A request to evaluate: a run's name or folder, and the tables to compare it with.

    Tables are paths or tables in memory; ``data``: the private table (None: the one recorded with the run).
    """

    release: str
    data: Table | None = field(default=None, repr=False)
    holdout: Table | None = field(default=None, repr=False)
    against: Sequence[Table] = field(default=(), repr=False)
    spec: EvaluationSpec = field(default_factory=EvaluationSpec)


@dataclass(frozen=True)
class Report:
    """A written report: its two files, in the private zone, and its figures.  PRIVATE: do not share.

    Privacy: every figure is an exact function of the private rows.  The representation shows none; ``scores`` and the
    files have them.
    """

    html: Path
    figures: Path
    evaluation: Evaluation

    @property
    def scores(self) -> dict[str, dict[str, float | None]]:
        """Table -> metric -> value (None if it is not known); the release's own table is ``release``."""
        return {s.table: {m.name: m.value for m in s.metrics} for s in self.evaluation.scores}

    def __repr__(self) -> str:
        return f"<Report of {self.evaluation.run}: PRIVATE, {self.html}>"


@dataclass(frozen=True)
class _Tables:
    real: CodedTable
    holdout: CodedTable | None
    compared: dict[str, CodedTable]
    encoding: EncodingPlan
    misread: tuple[MisreadColumn, ...]
    broken: tuple[str, ...] = ()


def evaluate(asked: AskedEvaluation, settings: Settings, stage: RunStage = lambda name, run: run()) -> Report:
    """Compare the release with the real table and write ``private/reports/<run>/report.html`` and its figures.

    Raises RequestError (exit 2) for a wrong argument or a missing package before any row is read, and for tables that
    do not fit the release's spec.  Spends nothing, releases nothing.
    """
    check_packages()
    get_roots(settings.private_root, settings.released_root)
    telemetry = Telemetry(settings)
    release = open_release(asked.release, settings, asked.data)
    run = release.manifest.run
    with telemetry.observe(release.spec.dataset, run, "evaluation", released=[run]) as observed:

        def run_traced(name: str, body: Callable[[], Result]) -> Result:
            with observed.span(name.split(maxsplit=1)[0].lower()):  # the rest may name a file
                return stage(name, body)

        return _evaluate(asked, settings, release, run_traced)


def _evaluate(asked: AskedEvaluation, settings: Settings, release: EvaluatedRelease, stage: RunStage) -> Report:
    for table, argument in (
        (release.private_table, "evaluate.data"),
        (asked.holdout, "evaluate.holdout"),
        *((table, "evaluate.against") for table in asked.against),
    ):
        if table is not None:
            check_table(release.spec.dataset, table, settings, argument)
    check_settings(asked.spec, release.encoding, release.spec.unmeasured_columns.keys())
    check_analyses(asked.spec.analyses, release.spec)
    released = details.ReleasedTables.read(release)
    opened = _open(asked, release)
    tables = stage("Read tables", lambda: opened.read(release, asked.spec))
    scorer = Scorer(tables.real, tables.holdout, tables.encoding, asked.spec, settings.threads, settings.anonymeter)
    scores = [
        stage(f"Score {name}", lambda table=table, name=name: TableScores(  # type: ignore[misc]
            table=name, rows=table.bins.rows, metrics=scorer.score(table, subsamples=True)))
        for name, table in tables.compared.items()
    ]  # fmt: skip
    spec, encoding, real, synthetic = release.spec, release.encoding, opened.real, opened.compared["release"]
    statistics = stage(
        "Compute statistics",
        lambda: compute_column_statistics(spec, encoding, real.batches(), synthetic.batches(), released.recode),
    )
    analyses = asked.spec.analyses and stage(
        "Run analyses", lambda: run_analyses(asked.spec.analyses, spec, encoding, real.batches(), synthetic.batches())
    )
    panel: tuple[PanelFigure, ...] = ()
    if spec.panel:
        panel += stage("Compare persons", lambda: compute_panel_figures(release, real.batches, synthetic.batches))
    if spec.table_pairs:
        panel += stage("Compare further tables", lambda: compute_table_pair_figures(release, real.source))
    figures = {"statistics": statistics, "analyses": analyses, "panel": panel}
    evaluation = stage("Find causes", lambda: _build_evaluation(release, released, tables, scorer, scores, figures))
    return stage("Write report", lambda: _write(locate_private_folder(settings, "reports", evaluation.run), evaluation))


@dataclass(frozen=True)
class _OpenedTables:
    """Tables with checked structure, before any row is read."""

    real: OpenTable
    holdout: OpenTable | None
    compared: dict[str, OpenTable]

    def read(self, release: EvaluatedRelease, settings: EvaluationSpec) -> _Tables:
        """Encode every table; a real column with many repairs gets a separate bin for its repaired values.

        Columns with a hierarchy in the settings get no such bin, since the hierarchy has no place for it.
        """
        reading, plain, spec = ColumnReading(), release.encoding, release.spec
        real = self.real.read(reading.repairs)
        reading.rows = real.fine.rows
        free = [c.attribute for c in plain.codecs if c.attribute not in settings.mgd.hierarchies]
        encoding = add_misread(plain, spec, reading.not_meant(spec, free))
        if encoding != plain:
            real = self.real.read(as_if=encoding)
        compared = {name: table.read(as_if=encoding) for name, table in self.compared.items()}
        holdout = None if self.holdout is None else self.holdout.read(as_if=encoding)
        misread = tuple(describe_misread(reading, encoding, spec))
        return _Tables(real, holdout, compared, encoding, misread, list_broken_rules(reading))


def _open(asked: AskedEvaluation, release: EvaluatedRelease) -> _OpenedTables:
    opened = partial(open_table, encoding=release.encoding, spec=release.spec)
    compared = {"release": opened(release.synthetic, field="evaluate.release")}
    for number, table in enumerate(asked.against, start=1):
        name = Path(table).name if isinstance(table, str | os.PathLike) else f"table {number}"
        while name in compared:
            name += "'"
        compared[name] = opened(table, field="evaluate.against")
    holdout = None if asked.holdout is None else opened(asked.holdout, field="evaluate.holdout")
    real = opened(release.private_table, field="evaluate.data", kept_by=release.measured, order=release.order)
    return _OpenedTables(real, holdout, compared)


def _build_evaluation(
    release: EvaluatedRelease,
    released: details.ReleasedTables,
    tables: _Tables,
    scorer: Scorer,
    scores: Sequence[TableScores],
    figures: Mapping[str, Any],
) -> Evaluation:
    real, synthetic = tables.real, tables.compared["release"]
    coarse = released.recoded(real, synthetic)
    own_bin = [m.column for m in tables.misread if m.counted]
    pairs = details.describe_pairs(scorer.pairs(synthetic), coarse, released, scorer.threads, own_bin)
    return Evaluation(
        run=release.manifest.run,
        dataset=release.spec.dataset,
        epsilon=release.spec.privacy.epsilon,
        delta=release.spec.privacy.delta,
        unit_of_protection=release.spec.describe_unit(),
        rows_real=real.bins.rows,
        rows_holdout=None if tables.holdout is None else tables.holdout.bins.rows,
        settings=scorer.spec,
        scores=tuple(scores),
        one_ways=details.describe_one_ways(release, tables.encoding, real, synthetic, released),
        pairs=pairs,
        sizes=details.list_sizes(scorer.size_errors(synthetic)),
        stages=details.list_stages(pairs, real, coarse, released, scorer.threads),
        earth_mover=scorer.earth_mover(synthetic).marginals,
        notes=tuple(_list_notes(release, tables)),
        misread=tables.misread,
        prior=release.spec.prior is not None,
        trends=bool(share_trends(plan_release(release.spec).request)),
        **figures,
    )


def _list_notes(release: EvaluatedRelease, tables: _Tables) -> list[str]:
    notes = ["Columns are compared in the public bins of the release spec."]
    if not release.manifest.differentially_private:
        notes.append("This run was made with test noise: it is not private at any epsilon.")
    if release.spec.unit.identifier is not None:
        notes.append(_compare_with_whole_table(release, tables))
    unmeasured = ", ".join(release.spec.unmeasured_columns)
    if unmeasured:
        notes.append(f"Not compared, since they were not measured and are drawn at random: {unmeasured}.")
    notes += tables.broken
    if tables.holdout is None:
        notes.append(
            "Without a hold-out table there is no membership attack, and models are tested on rows that the "
            "release has seen."
        )
    return notes


def _compare_with_whole_table(release: EvaluatedRelease, tables: _Tables) -> str:
    """Return how the rows kept for each person, and the release, differ from the whole table."""
    everything = open_table(release.private_table, release.encoding, release.spec, "evaluate.data")
    all_bins, kept_bins = everything.read(as_if=tables.encoding).bins, tables.real.bins
    columns = list_all_cliques(all_bins.domain, 1)
    of_kept, of_release = (average_l1(all_bins, t, columns) for t in (kept_bins, tables.compared["release"].bins))
    unit = release.spec.unit
    return (
        f"Compared are the rows that a release keeps: at most {unit.records} of a {unit.one}, {kept_bins.rows:,} "
        f"of the {all_bins.rows:,} real rows. From the whole table, single columns of the kept rows differ by an L1 of "
        f"{of_kept:.3g} on average, and columns of the release by {of_release:.3g}."
    )


def _write(folder: Path, evaluation: Evaluation) -> Report:
    html, figures = folder / REPORT, folder / FIGURES
    with translate_os_errors(folder):
        with replace_file(figures) as temporary:
            temporary.write_text(evaluation.model_dump_json(indent=1) + "\n", encoding="utf-8")
        with replace_file(html) as temporary:
            temporary.write_text(render(evaluation), encoding="utf-8")
    return Report(html, figures, evaluation)
