"""The evaluation flow: a release against the private table, as a Prefect flow that leaves a private report.

Prefect's database and pages are not the private zone. Of the evaluation they get only the report's place: no figure,
result or error text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from prefect import Task, flow
from prefect.cache_policies import NO_CACHE
from pydantic import BaseModel, ConfigDict, Field

from privsyn.base.errors import PrivsynError, RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.evaluation import EvaluationSpec
from privsyn.evaluation.private_evaluation import AskedEvaluation
from privsyn.evaluation.private_evaluation import evaluate as evaluate_release
from privsyn.evaluation.quality_release import QualitySummary, publish_quality
from privsyn.flows.metrics import note_run
from privsyn.flows.private_errors import hide_private_errors
from privsyn.flows.run_page import ignore_page_errors, label_run, link_private_results
from privsyn.flows.states import DATASET, make_failed_state
from privsyn.storage.released_files import find_release, read_manifest


class EvaluationSummary(BaseModel):
    """The place of an evaluation's report, without any figure."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    report: str | None = Field(default=None, description="The private page.")
    figures: str | None = Field(default=None, description="Its figures, as private.")
    quality: QualitySummary | None = Field(default=None, description="The figures that were released instead.")


@flow(
    name="evaluate",
    flow_run_name="{release}",
    description="Compare a release with the private table: a private report.",
    persist_result=False,
)
def evaluate(
    release: str,
    data: str | None = None,
    holdout: str | None = None,
    against: list[str] | None = None,
    settings: EvaluationSpec = EvaluationSpec(),  # noqa: B008 - frozen, and the run form shows its fields
    epsilon_report: float | None = None,
) -> EvaluationSummary:
    """Compare a release with the private table and write a private report.

    Args:
        release: The run's name, or its folder under released/.
        data: The private table; default: the table that the run remembers.
        holdout: Real rows that the release has not seen, for models and attacks.
        against: Other synthetic tables of the same columns.
        settings: Labels, queries, groups, hierarchies; all have defaults.
        epsilon_report: Instead of the private report, release a few noisy headline figures at this epsilon, charged to
            the data set's budget.

    The report is in private/reports/. It is private, because it is computed from the private rows without noise.
    """
    try:
        with hide_private_errors("evaluation"):
            dataset = _label_with_dataset(release)
            if epsilon_report is not None:
                summary = EvaluationSummary(quality=publish_quality(release, epsilon_report, Settings(), data=data))
            else:
                asked = AskedEvaluation(release, data, holdout, tuple(against or ()), settings)
                report = evaluate_release(asked, Settings(), _run_stage)
                link_private_results(
                    report.html,
                    f"the private rows of {report.evaluation.run}",
                    f"Private report of {report.evaluation.run}",
                    "private-report",
                    report.evaluation.dataset,
                )
                summary = EvaluationSummary(report=str(report.html), figures=str(report.figures))
            with ignore_page_errors("gauge"):
                note_run(dataset, "evaluate", Settings())
            return summary
    except PrivsynError as error:
        return cast(EvaluationSummary, make_failed_state(error))


def _label_with_dataset(release: str) -> str:
    """Label the flow run with the release's data set, for the metrics, and return it; empty without such a release."""
    try:
        manifest = read_manifest(find_release(release, Settings(), "evaluate.release"))
    except RequestError:
        return ""
    dataset = str(manifest.spec.get("dataset", ""))
    with ignore_page_errors("label"):
        label_run({DATASET: dataset})
    return dataset


def _run_stage(name: str, run: Callable[[], Any]) -> Any:
    """Return one stage as a Prefect task; its result stays in memory."""

    def body() -> Any:
        with hide_private_errors("evaluation"):
            return run()

    return Task(fn=body, name=name, task_run_name=name, cache_policy=NO_CACHE, persist_result=False, log_prints=False)()
