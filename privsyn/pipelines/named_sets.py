"""The steps that measure whole sets of columns: sets that the spec names, and triples found by scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import LookKind, StepKind
from privsyn.data_contracts.domain import Clique, Domain
from privsyn.data_contracts.receipts import Query
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import (
    LookDescription,
    Output,
    Progress,
    PublishedFile,
    ReleaseStep,
    RowStream,
    Step,
    repeat,
    say,
)
from privsyn.pipelines.budget import SetParts, split_sets
from privsyn.pipelines.common_steps import (
    COMPRESS_DOMAIN,
    ONE_CELL,
    RECODE,
    RECODED,
    RELEASED,
    compress_by_one_ways,
    list_released_tables,
    publish_noisy,
)
from privsyn.tasks.codecs.cells import get_ordered
from privsyn.tasks.estimation.marginals import Marginal, from_table
from privsyn.tasks.estimation.noisy import pool_answers
from privsyn.tasks.estimation.recode import estimate_total, recode_to_table
from privsyn.tasks.kernels.counting import Countable
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart
from privsyn.tasks.steps import compress_domain, measure_marginals, score_columns

MEASURE_SETS, TRIPLE_SCORES = "measure_sets", "triple_scores"

MERGES = "plan_sets.merges"
HALVES, HALF_ROWS = "plan_halves.merges", "halve_rows.merged_rows"
SET_MARGINALS = "make_consistent.set_marginals"
CONSISTENT_SETS = (SET_MARGINALS, MERGES)
"""The tables of the sets after consistency, in releases with sets."""

MERGES_FILE = "marginals/merges.parquet"
ROWS = "merge_rows.merged_rows"
COUNTS_OF_SETS = "joint counts of the named sets of columns"
WORDS = "has the joint counts of the named sets in merged codes"


def _sets_have_own_codes(request: Request) -> bool:
    """Return whether columns of named sets may have codes chosen for the sets."""
    settings, binning = request.spec.mechanism.compression, request.encoding.binning
    columns = {a for m in request.spec.measured_sets for a in request.encoding.attributes_of(m.columns)}
    return settings.enabled and settings.equal_mass and any(binning[a].is_open for a in columns)


def _compress(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    public, settings, binning = request.public, request.spec.mechanism.compression, request.encoding.binning
    least = compress_domain.NO_LEAST
    if _sets_have_own_codes(request):
        fine = compress_by_one_ways(request, inputs, settings.model_copy(update={"equal_mass": False}))
        ordered, starts = get_ordered(binning), public.in_codes(fine).starts
        rho = inputs.rho[MEASURE_SETS] * split_sets(request).named_of_measured
        sets = measure_marginals.plan_sets(public.measured_sets, fine, ordered, rho, request.records, starts)
        differences = {codec.attribute for codec in request.encoding.differences}
        named = [planned for planned in sets if not differences & {*planned.attributes}]
        least = measure_marginals.count_wanted_codes(named, fine, binning)
    recode = compress_by_one_ways(request, inputs, settings, least)
    return {"recode": recode_to_table(recode, request.encoding.labels())}


COMPRESS_FOR_SETS = replace(
    COMPRESS_DOMAIN,
    budgets=(MEASURE_SETS,),
    reads=(*COMPRESS_DOMAIN.reads, KnowledgePart.TARGETS),
    run=_compress,
    words=lambda r: (
        say(COMPRESS_DOMAIN.words, r)
        + ("; columns of named sets have codes for these" if _sets_have_own_codes(r) else "")
    ),
)
"""Chooses codes; columns of named sets get as many codes as the noise of the sets allows."""


def _plan_halves(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    halves = score_columns.halve_attributes(inputs.recode(), get_ordered(request.encoding.binning))
    return {"merges": measure_marginals.tabulate_merges([halves])}


PLAN_HALVES = Step(
    name="plan_halves",
    title="Plan halves",
    about="each column in two halves of about equal counts",
    when="before triple scores",
    kind=StepKind.POSTPROCESS,
    only_with_look=TRIPLE_SCORES,
    inputs=(RECODE,),
    outputs={"merges": tables.MERGES},
    run=_plan_halves,
)


def _read_halves(inputs: Inputs) -> measure_marginals.PlannedSet:
    return measure_marginals.read_merges(inputs.table(HALVES))[0]


def _plan_scores(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
    triples = score_columns.list_triples(request.public.targets.focus, _read_halves(inputs))
    return score_columns.plan_triples(triples, rho, request.records)


def _score(request: Request, inputs: Inputs, rows: Countable, queries: list[Query]) -> Iterator[NDArray[np.int64]]:
    halves = _read_halves(inputs)
    values = score_columns.compute_values(inputs.recode(), halves)
    columns = dict(zip(halves.attributes, measure_marginals.name_columns(0, halves), strict=True))
    return score_columns.count_triples(rows, columns, values, queries, request.threads)


SCORE_TRIPLES = ReleaseStep(
    name=TRIPLE_SCORES,
    title="Triple scores",
    about="how well two columns together predict one in focus",
    when="`focus` asks for triples",
    measures=LookKind.TRIPLES,
    read_with=list_released_tables("indif_scores"),
    inputs=(HALF_ROWS, HALVES, RECODE),
    outputs=RELEASED,
    reads=(KnowledgePart.TARGETS,),
    plan=_plan_scores,
    exact=_score,
    look=LookDescription(
        counted="how well two columns together predict one in focus",
        reason=(
            "k: the values follow from noisy counts released before. A row's product of three of them is between -1 "
            "and 1, so each of a person's k records moves the sum by at most 1. Rounding down keeps the bound"
        ),
        noise_of="an interaction",
    ),
    rows=HALF_ROWS,
    rows_domain=lambda r, i: measure_marginals.build_set_domain([_read_halves(i)]),
    padded=True,
    published=publish_noisy("triples", "how well two columns together predict a third"),
)


def _plan_sets(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    recode, public, parts = inputs.recode(), request.public, split_sets(request)
    found_sets = _find_sets(request, inputs) if parts.found else []
    sets = measure_marginals.plan_sets(
        _weigh(public.measured_sets, found_sets, parts),
        recode,
        get_ordered(request.encoding.binning),
        inputs.rho[MEASURE_SETS],
        request.records,
        public.in_codes(recode).starts,
    )
    return {"merges": measure_marginals.tabulate_merges(sets)}


PLAN_SETS = Step(
    name="plan_sets",
    title="Plan sets",
    about="the cells of each named set, as many as the noise allows",
    when="before sets are measured",
    kind=StepKind.POSTPROCESS,
    only_with_look=MEASURE_SETS,
    budgets=(MEASURE_SETS,),
    inputs=(RECODE,),
    look_kinds=(LookKind.TRIPLES,),
    outputs={"merges": tables.MERGES},
    reads=(KnowledgePart.TARGETS,),
    run=_plan_sets,
    published={
        "merges": PublishedFile(
            MERGES_FILE, "says which codes (`coarse`) are one (`merged`) in the joint counts of each named set"
        )
    },
    words=lambda r: (
        "the named sets are counted in cells of about equal noisy counts, as many as the noise allows"
        + ("; questions are counted in their own cells" if any(m.question for m in r.spec.measured_sets) else "")
    ),
)
"""Plans the named sets and the sets found by the triples' scores."""


def _find_sets(request: Request, inputs: Inputs) -> list[Clique]:
    """Return the sets to measure, by the noisy scores of triples and pairs."""
    recode, pairs = inputs.recode(), zip(*inputs.noisy_scores("indif_scores"), strict=True)
    return score_columns.choose_sets(
        *inputs.noisy_scores(TRIPLE_SCORES),
        estimate_total(recode),
        request.public.targets.focus,
        {q.attributes: score for q, score in pairs},
        recode,
    )


def _weigh(
    named: Sequence[tuple[frozenset[str], float]], found: Sequence[Clique], shares: SetParts
) -> list[tuple[frozenset[str], float]]:
    """Return the sets, each once, with weights that give the named and the found sets their parts of the budget."""
    total = sum(weight for _, weight in named)
    weighed = {columns: weight / total * float(shares.named) for columns, weight in named}
    for clique in found:
        columns = frozenset(clique)
        weighed[columns] = weighed.get(columns, 0.0) + float(shares.found) / len(found)
    return list(weighed.items())


def _build_merging(name: str, title: str, merges: str, only_with_look: str, when: str) -> Step:
    """Return the step that turns rows into the merged codes of the table ``merges``."""

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        sets = measure_marginals.read_merges(inputs.table(merges))
        rows = measure_marginals.merge_rows(inputs.batches(RECODED), sets)
        return {"merged_rows": RowStream.of_codes(rows, measure_marginals.build_set_domain(sets), padded=True)}

    return Step(
        name=name,
        title=title,
        about="the rows in the merged codes",
        when=when,
        kind=StepKind.TRANSFORM,
        only_with_look=only_with_look,
        inputs=(RECODED, merges),
        outputs={"merged_rows": tables.RECODED_ROWS},
        run=run,
    )


MERGE_ROWS = _build_merging("merge_rows", "Merge rows", MERGES, MEASURE_SETS, "before sets are measured")
HALVE_ROWS = _build_merging("halve_rows", "Halve rows", HALVES, TRIPLE_SCORES, "before triple scores")


def read_sets(inputs: Inputs) -> list[measure_marginals.PlannedSet]:
    """Return the planned sets."""
    return measure_marginals.read_merges(inputs.table(MERGES))


COUNT_SETS = ReleaseStep(
    name=MEASURE_SETS,
    title="Measure sets",
    about="joint counts of the named sets",
    when="`workload`, `compare`, triples of `focus`",
    measures=LookKind.SETS,
    read_with=(MERGES,),
    inputs=(ROWS, MERGES),
    outputs=RELEASED,
    plan=lambda r, i, rho: measure_marginals.plan_set_queries(read_sets(i), rho, r.records),
    exact=lambda r, i, rows, queries: measure_marginals.count_sets(rows, read_sets(i), r.threads),
    look=LookDescription(counted=COUNTS_OF_SETS, reason=ONE_CELL),
    rows=ROWS,
    rows_domain=lambda r, i: measure_marginals.build_set_domain(read_sets(i)),
    padded=True,
    published=publish_noisy("sets", WORDS),
)

SET_STEPS = (PLAN_HALVES, HALVE_ROWS, SCORE_TRIPLES, PLAN_SETS, MERGE_ROWS, COUNT_SETS)
"""The steps that look for sets of columns, plan them and measure them."""


def measure_sets_again(n: int) -> ReleaseStep:
    """Return the look of a further release ``n`` at the same sets."""
    return repeat(COUNT_SETS, n, publish_noisy(f"sets_{n}", WORDS))


def read_set_marginals(inputs: Inputs) -> list[Marginal]:
    """Return the noisy marginals of the measured sets; empty if no look measured sets."""
    if not inputs.list_looks(LookKind.SETS):
        return []
    queries, answers = pool_answers(*inputs.all_noisy(LookKind.SETS))
    noisy = {q.attributes: (y, q.sigma) for q, y in zip(queries, answers, strict=True)}
    return measure_marginals.build_set_marginals(read_sets(inputs), noisy)


def read_consistent_sets(inputs: Inputs, domain: Domain) -> list[Marginal]:
    """Return the sets in merged codes after consistency; empty if there are none."""
    if not inputs.has(SET_MARGINALS):
        return []
    return from_table(inputs.table(SET_MARGINALS), domain, [planned.merges for planned in read_sets(inputs)])


def set_apart(consistent: Sequence[Marginal]) -> tuple[list[Marginal], list[Marginal]]:
    """Return the marginals in the recoding's codes, and the sets in merged codes."""
    return [m for m in consistent if not m.merges], [m for m in consistent if m.merges]


def list_attributes(sets: Sequence[Marginal]) -> frozenset[str]:
    """Return the attributes of the sets, whose rows are made together."""
    return frozenset(a for m in sets for a in m.attributes)
