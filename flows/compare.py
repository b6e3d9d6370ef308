"""The comparison flow: several methods on one table, as a Prefect flow that leaves a private folder.

Its figures are exact functions of the real rows: none reaches Prefect's database or pages, which show only the number
of finished runs and the place of the results.
"""

from __future__ import annotations

from typing import Annotated, cast
from uuid import UUID

from prefect import flow
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.context import FlowRunContext
from pydantic import BaseModel, ConfigDict, Field

from privsyn.base.errors import PrivsynError
from privsyn.base.settings import Settings
from privsyn.data_contracts.evaluation import EvaluationSpec
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.evaluation.comparison.compare_methods import (
    DEFAULT_EPSILONS,
    DEFAULT_METHODS,
    MOST_SEEDS,
    AskedComparison,
    Report,
)
from privsyn.evaluation.comparison.compare_methods import compare as compare_methods
from privsyn.flows.metrics import note_run
from privsyn.flows.private_errors import hide_private_errors
from privsyn.flows.run_page import format_artifact_key, ignore_page_errors, link_private_results
from privsyn.flows.states import make_failed_state

Epsilon = Annotated[float, Field(gt=0, le=1e6)]


class CompareSummary(BaseModel):
    """The place of a comparison's results, without any figure."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str = Field(description="The private folder: table.md, plot.svg, results.json.")
    runs: int = Field(description="Runs: methods x epsilons x seeds.")
    done: int = Field(description="Of those, whole.")


@flow(
    name="compare",
    flow_run_name="{spec.dataset}",
    description="Compare methods on a table that is public or stays with you: a private folder. Charges nothing.",
    persist_result=False,
)
def compare(
    spec: ReleaseSpec,
    methods: list[str] = list(DEFAULT_METHODS),  # noqa: B006 - read only, and the run form shows it
    epsilons: list[Epsilon] = list(DEFAULT_EPSILONS),  # noqa: B006
    seeds: Annotated[int, Field(ge=1, le=MOST_SEEDS)] = 3,
    holdout: str | None = None,
    settings: EvaluationSpec = EvaluationSpec(labels="auto"),  # noqa: B008 - frozen, and the run form shows its fields
) -> CompareSummary:
    """Run and score every method at every epsilon with every seed. NOT private: the noise is seeded, the figures exact.

    Args:
        spec: The release spec: the table, the columns, delta and the settings of the method `default`.
        methods: Names of methods; a wrong name is refused with a list of all names.
        epsilons: Epsilons, with the spec's delta.
        seeds: Repetitions, with the seeds 0, 1, ...
        holdout: Real rows that no method sees, for models and attacks.
        settings: Labels, queries, groups, hierarchies; all have defaults.

    The results are private, in private/compare/.  Nothing is charged, because nothing is released.
    """
    try:
        with hide_private_errors("comparison"):
            asked = AskedComparison(spec, methods, epsilons, seeds, holdout, settings)
            asked.check()
            compared = compare_methods(asked, Settings(), _report_progress(spec.dataset))
            rows = f"the real rows of {compared.results.dataset} without noise"
            table = compared.folder / "table.md"
            link_private_results(table, rows, "Private comparison", "private-comparison", compared.results.dataset)
            runs = compared.results.runs
            done = sum(run.outcome == "done" for run in runs)
            if not done:
                raise PrivsynError("no run of the comparison was whole", f"{compared.folder}/table.md says why")
            with ignore_page_errors("gauge"):
                note_run(spec.dataset, "compare", Settings())
            return CompareSummary(folder=str(compared.folder), runs=len(runs), done=done)
    except PrivsynError as error:
        return cast(CompareSummary, make_failed_state(error))


def _report_progress(dataset: str) -> Report:
    """Show the number of finished runs on the run page, if there is one."""
    if FlowRunContext.get() is None:
        return lambda work, done, total: None
    artifact: UUID = create_progress_artifact(
        0.0, key=format_artifact_key("compare-progress", dataset), description="Runs that are done"
    )  # type: ignore[assignment]

    def report(work: str, done: int, total: int) -> None:
        update_progress_artifact(artifact, 100.0 * done / total, description=f"{done} of {total} runs done: {work}")

    return report
