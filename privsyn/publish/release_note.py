"""The data-release note: README.md beside the released table, in plain words (``templates/release.md.j2``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import comb

from privsyn.data_contracts.certificate import Certificate, explain_missing_relations
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.plan import Plan
from privsyn.engine.step import LookDescription, ReleaseStep, Step, release_steps
from privsyn.pipelines.budget import share_trends
from privsyn.publish.certificate_of_run import PRIOR_PROMISE, TOTALS_PROMISE, list_measured_relations
from privsyn.publish.formats.csv_file import choose_style, find_formulas, name_csv
from privsyn.publish.formats.described import list_ranges
from privsyn.publish.formats.linked_files import (
    describe_linked_column,
    list_linked_ranges,
    list_linked_tables,
    name_linked_file,
)
from privsyn.publish.markdown import render_note
from privsyn.publish.related_pairs import NAME, RelatedPair, ScoredPair
from privsyn.tasks.codecs.cells import list_counted_alone
from privsyn.tasks.synthesis.shards import plan_shards

SHOWN_VALUES = 12
"""Categories named one by one in the schema table; longer lists are cut and counted."""

LISTED = 30
"""Pairs of columns that are listed one by one, the strongest first."""


def release_note(
    plan: Plan,
    certificate: Certificate,
    rows: int,
    pairs: Sequence[RelatedPair],
    unmeasured: Sequence[ScoredPair] = (),
    *,
    private: bool,
) -> str:
    """Return Markdown: what the table is, what is promised, its columns, its cost, how to use it and how not.

    ``pairs``: the measured pairs of columns, the strongest first; ``unmeasured``: those that were only scored.
    """
    request, spec = plan.request, plan.request.spec
    ranges, table, trends = list_ranges(request), name_table(spec, rows), bool(share_trends(request))
    return render_note(
        "release.md.j2",
        c=certificate,
        spec=spec,
        private=private,
        rows=rows,
        table=table,
        linked=list_linked_tables(spec),
        linked_file=name_linked_file,
        further=spec.further_tables,
        further_ranges=list_linked_ranges(request) if request.table_pairs else {},
        describe_column=describe_linked_column,
        csv=name_csv(table),
        style=choose_style(spec, ranges),
        formulas=find_formulas(ranges),
        estimated=spec.mechanism.synthesis.rows == "auto",
        ranges=ranges,
        looks=list_looks(plan.steps),
        relations=list_measured_relations(plan, certificate.stages),
        missing=explain_missing_relations(prior=certificate.prior is not None, trends=trends),
        trends=trends,
        pairs=pairs,
        possible_pairs=comb(len(plan.domain.attributes) - len(list_counted_alone(request.encoding.binning)), 2),
        unmeasured=unmeasured,
        files=[file for step in _sort_counts_first(plan.steps) for file in step.published.values() if file.words],
        limits=list(dict.fromkeys(step.limit for step in plan.steps if step.limit)),  # table pairs repeat steps
        prior_promise=PRIOR_PROMISE,
        totals_promise=TOTALS_PROMISE,
        SHOWN=SHOWN_VALUES,
        LISTED=LISTED,
        PICTURE=NAME,
    )


def _sort_counts_first(steps: Sequence[Step]) -> list[Step]:
    return sorted(steps, key=lambda s: isinstance(s, ReleaseStep) and s.look.noise_of != "a count")


Looks = Mapping[str, LookDescription]
"""Release step -> the facts of its look."""


def list_looks(steps: Iterable[Step]) -> Looks:
    """Return the looks at the private table of these steps, by the step's name."""
    return {step.name: step.look for step in release_steps(steps)}


def name_table(spec: ReleaseSpec, rows: int) -> str:
    """Return where a synthetic table of so many rows lies in its released folder: a file, or all files of a pattern."""
    return "synthetic.parquet" if len(plan_shards(rows, spec.mechanism.synthesis)) == 1 else "synthetic/part-*.parquet"
