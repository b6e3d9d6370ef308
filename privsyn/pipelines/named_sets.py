"""The steps that measure sets of columns whole: those that the spec names, and triples that scores find."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import LookKind, StepKind
from privsyn.data_contracts.domain import Clique
from privsyn.data_contracts.receipts import Query
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import Look, Output, Progress, PublishedFile, ReleaseStep, Step
from privsyn.pipelines.common_steps import (
    COMPRESS_DOMAIN,
    ONE_CELL,
    RECODE,
    RECODED,
    RELEASED,
    compress_by_one_ways,
    list_released_tables,
    publish_noisy,
    stream_codes,
)
from privsyn.tasks.codecs.binning import get_ordered
from privsyn.tasks.estimation.marginals import Marginal
from privsyn.tasks.estimation.noisy import pool_answers
from privsyn.tasks.estimation.question_cells import has_codes_beside
from privsyn.tasks.estimation.recode import estimate_total, recode_to_table
from privsyn.tasks.kernels.counting import Countable
from privsyn.tasks.knowledge.public_knowledge import COMPARED_WEIGHT, KnowledgePart
from privsyn.tasks.steps import named_sets, triple_scores

MEASURE_SETS = "measure_sets"
"""The first step that measures sets."""

MERGES = "plan_sets.merges"
HALVES, HALF_ROWS = "plan_halves.merges", "halve_rows.merged_rows"
MERGES_FILE = "marginals/merges.parquet"
ROWS = "merge_rows.merged_rows"
COUNTS_OF_SETS = "joint counts of the named sets of columns"


SEARCH_SHARE = Fraction(1, 10)
"""Share of a measurement's budget that looks for triples of the focus and measures what it finds."""

SCORES_PART = Fraction(1, 4)
"""Part of that which the triples' scores have."""


class Shares(NamedTuple):
    """Parts of a measurement's budget: of named sets, of the triples' scores, and of what these find."""

    named: Fraction
    scores: Fraction
    found: Fraction


def compute_shares(request: Request) -> Shares:
    """Return the parts of a measurement's budget for sets of columns, 0 where a kind has none.  Public."""
    spec = request.spec
    search = SEARCH_SHARE if spec.looks_for_triples else Fraction(0)
    sizes = [(len(m.columns), m.weight) for m in spec.measured_sets]
    least = named_sets.compute_least_share([size for size, _ in sizes])
    sizes += [(3, COMPARED_WEIGHT)] * len(spec.compared_pairs)  # the two columns and their difference
    named = named_sets.compute_share(sizes, len(spec.measured_columns))
    named = max(named, least) * (1 - search)
    return Shares(named, search * SCORES_PART, search * (1 - SCORES_PART))


def compute_share(request: Request) -> Fraction:
    """Return the part of a measurement's budget that is for sets, named or found, and for looking for them.  Public."""
    return sum(compute_shares(request), Fraction(0))


def build_compression_step(request: Request, measurement: Fraction) -> Step:
    """Return the step that chooses codes: of columns of named sets as many as the sets' noise leaves rows for.

    ``measurement``: the share of the budget of which the sets have their parts.  Without named sets, or where none of
    their columns has codes of equal mass, it is the step of all mechanisms.
    """
    compression, binning = request.spec.mechanism.compression, request.encoding.binning
    columns = {a for m in request.spec.measured_sets for a in request.encoding.attributes_of(m.columns)}
    if not (compression.enabled and compression.equal_mass and any(binning[a].is_open for a in columns)):
        return COMPRESS_DOMAIN
    share = measurement * compute_shares(request).named

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        public, settings = request.public, request.spec.mechanism.compression
        fine = compress_by_one_ways(request, inputs, settings.model_copy(update={"equal_mass": False}))
        ordered, starts = get_ordered(request.encoding.binning), public.in_codes(fine).starts
        rho = request.total_rho * share
        sets = named_sets.plan_sets(public.measured_sets, fine, ordered, rho, request.records, starts)
        differences = {codec.attribute for codec in request.encoding.differences}
        named = [planned for planned in sets if not differences & {*planned.attributes}]
        least = named_sets.count_wanted_codes(named, fine, request.encoding.binning)
        recode = compress_by_one_ways(request, inputs, settings, least)
        return {"recode": recode_to_table(recode, request.encoding.labels())}

    return replace(
        COMPRESS_DOMAIN,
        settings=lambda r: {
            **r.spec.mechanism.compression.key(),
            "sets": str(r.total_rho * share),
            **_key_null_in_sets(r),
        },
        reads=(*COMPRESS_DOMAIN.reads, KnowledgePart.TARGETS),
        run=run,
        words=lambda r: f"{COMPRESS_DOMAIN.words(r)}; columns of named sets have codes for these",
    )


def build_set_steps(request: Request, measurement: Fraction) -> tuple[Step, ...]:
    """Return the steps that look for sets, plan them and measure them; none without sets.

    ``measurement``: the share of the budget of which the sets have their parts.
    """
    shares = compute_shares(request)
    if not any(shares):
        return ()
    measure = build_set_measurement(measurement * (shares.named + shares.found))
    search = (PLAN_HALVES, HALVE_ROWS, _build_triple_scores(measurement * shares.scores)) if shares.scores else ()
    return (*search, _build_plan(measure, shares), MERGE_ROWS, measure)


def _plan_halves(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    halves = triple_scores.halve_attributes(inputs.recode(), get_ordered(request.encoding.binning))
    return {"merges": named_sets.tabulate_merges([halves])}


PLAN_HALVES = Step(
    name="plan_halves",
    title="Plan halves",
    kind=StepKind.POSTPROCESS,
    inputs=(RECODE,),
    outputs={"merges": tables.MERGES},
    run=_plan_halves,
)


def _build_triple_scores(share: Fraction) -> ReleaseStep:
    """Return the noisy scores of the triples of the focus, with this share of the budget."""

    def read_halves(inputs: Inputs) -> named_sets.PlannedSet:
        return named_sets.read_merges(inputs.table(HALVES))[0]

    def plan(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
        triples = triple_scores.list_triples(request.public.targets.focus, read_halves(inputs))
        return triple_scores.plan_queries(triples, rho, request.records)

    def exact(request: Request, inputs: Inputs, rows: Countable, queries: list[Query]) -> Iterator[NDArray[np.int64]]:
        halves = read_halves(inputs)
        values = triple_scores.compute_values(inputs.recode(), halves)
        columns = dict(zip(halves.attributes, named_sets.name_columns(0, halves), strict=True))
        return triple_scores.count_exactly(rows, columns, values, queries, request.threads)

    return ReleaseStep(
        name="triple_scores",
        title="Triple scores",
        measures=LookKind.TRIPLES,
        inputs=(HALF_ROWS, HALVES, RECODE),
        outputs=RELEASED,
        reads=(KnowledgePart.TARGETS,),
        plan=plan,
        exact=exact,
        share=lambda r: share,
        look=Look(
            what="how much two columns together say of one in focus",
            reason=lambda r: (
                "k: a row's product of three values, which follow from noisy counts released before, is between -1 and "
                "1, so each of a person's k records moves the sum by at most 1; rounding down to whole records keeps it"
            ),
            noise_of="an interaction",
        ),
        rows=HALF_ROWS,
        rows_domain=lambda r, inputs: named_sets.build_set_domain(named_sets.read_merges(inputs.table(HALVES))),
        padded=True,
        published=publish_noisy("triples", "how much two columns together say of a third"),
    )


def _build_plan(measure: ReleaseStep, shares: Shares) -> Step:
    """Return the step that plans the named sets and those that the triples' scores find."""
    searched = ("triple_scores", "indif_scores") if shares.found else ()

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        recode, public = inputs.recode(), request.public
        found_sets = _find_sets(request, inputs) if searched else []
        sets = named_sets.plan_sets(
            _weigh(public.measured_sets, found_sets, shares),
            recode,
            get_ordered(request.encoding.binning),
            measure.rho(request),
            request.records,
            public.in_codes(recode).starts,
        )
        return {"merges": named_sets.tabulate_merges(sets)}

    return Step(
        name="plan_sets",
        title="Plan sets",
        kind=StepKind.POSTPROCESS,
        inputs=(RECODE, *list_released_tables(searched)),
        outputs={"merges": tables.MERGES},
        settings=lambda r: {
            **measure.priced(r),
            "found": str(shares.found),
            **key_named_pairs(r),
            **_key_null_in_sets(r),
        },
        reads=(KnowledgePart.TARGETS,),
        run=run,
        published={
            "merges": PublishedFile(
                MERGES_FILE,
                "says which codes (`coarse`) are one (`merged`) in the joint counts of each named set",
            )
        },
        words=lambda r: (
            "the named sets are counted in cells of about equal noisy counts, as many as the noise allows"
            + ("; questions in the cells that they ask for" if any(m.question for m in r.spec.measured_sets) else "")
        ),
    )


def _find_sets(request: Request, inputs: Inputs) -> list[Clique]:
    """Return the sets that the noisy scores of triples, and of pairs, say to measure."""
    queries, answers = inputs.noisy("triple_scores")
    score_queries, scores = inputs.noisy("indif_scores")
    recode = inputs.recode()
    return triple_scores.choose_sets(
        queries,
        [float(y[0]) for y in answers],
        estimate_total(recode),
        request.public.targets.focus,
        {q.attributes: float(y[0]) for q, y in zip(score_queries, scores, strict=True)},
        recode,
    )


def _weigh(
    named: Sequence[tuple[frozenset[str], float]], found: Sequence[Clique], shares: Shares
) -> list[tuple[frozenset[str], float]]:
    """Return the sets with weights by which the named and the found ones have their parts; a found one only once."""
    total = sum(weight for _, weight in named)
    weighed = {columns: weight / total * float(shares.named) for columns, weight in named}
    for clique in found:
        columns = frozenset(clique)
        weighed[columns] = weighed.get(columns, 0.0) + float(shares.found) / len(found)
    return list(weighed.items())


def _build_merging(name: str, title: str, merges: str) -> Step:
    """Return the step that turns rows into the merged codes of the table ``merges``."""

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        sets = named_sets.read_merges(inputs.table(merges))
        rows = named_sets.merge_rows(inputs.batches(RECODED), sets)
        return {"merged_rows": stream_codes(rows, named_sets.build_set_domain(sets), padded=True)}

    return Step(
        name=name,
        title=title,
        kind=StepKind.TRANSFORM,
        inputs=(RECODED, merges),
        outputs={"merged_rows": tables.RECODED_ROWS},
        settings=lambda r: None,
        run=run,
    )


MERGE_ROWS = _build_merging("merge_rows", "Merge rows", MERGES)
HALVE_ROWS = _build_merging("halve_rows", "Halve rows", HALVES)


def build_set_measurement(share: Fraction, n: int | None = None) -> ReleaseStep:
    """Return the noisy joint tables of the planned sets, with this share of the budget, of release ``n`` of several."""

    def plan(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
        return named_sets.plan_queries(named_sets.read_merges(inputs.table(MERGES)), rho, request.records)

    def exact(request: Request, inputs: Inputs, rows: Countable, queries: list[Query]) -> Iterator[NDArray[np.int64]]:
        return named_sets.count_exactly(rows, named_sets.read_merges(inputs.table(MERGES)), request.threads)

    return ReleaseStep(
        name=MEASURE_SETS if n is None else f"{MEASURE_SETS}_{n}",
        title="Measure sets" if n is None else f"Measure sets, release {n}",
        measures=LookKind.SETS,
        read_with=(MERGES,),
        inputs=(ROWS, MERGES),
        outputs=RELEASED,
        plan=plan,
        exact=exact,
        share=lambda r: share,
        look=Look(what=COUNTS_OF_SETS, reason=lambda r: ONE_CELL, round=n),
        rows=ROWS,
        rows_domain=lambda r, inputs: named_sets.build_set_domain(named_sets.read_merges(inputs.table(MERGES))),
        padded=True,
        published=publish_noisy(
            "sets" if n is None else f"sets_{n}", "has the joint counts of the named sets in merged codes"
        ),
    )


def list_named_pairs(request: Request) -> frozenset[Clique]:
    """Return the pairs of attributes that the spec names as measured sets, of which no question is asked."""
    encoding, named = request.encoding, (m for m in request.spec.measured_sets if m.asked is None)
    sets = {encoding.domain.ordered(encoding.attributes_of(m.columns)) for m in named}
    return frozenset(clique for clique in sets if len(clique) == 2)


def key_named_pairs(request: Request) -> dict[str, Any]:
    """Return how named pairs are counted and shrunk, for cache keys; nothing without any, as in earlier keys."""
    return {"pairs": "as pairs"} if list_named_pairs(request) else {}


def _key_null_in_sets(request: Request) -> dict[str, Any]:
    """Return how null is merged in named sets of more than two columns; nothing where none is beside values in order.

    Earlier keys have no such field: null was merged with values there.
    """
    encoding, apart = request.encoding, set()
    for marginal in request.spec.measured_sets:
        attributes = frozenset(encoding.attributes_of(marginal.columns))
        if marginal.asked is None and len(attributes) > 2:
            apart |= {a for a in attributes if has_codes_beside(encoding.binning[a])}
    return {"null apart": sorted(apart)} if apart else {}


def read_sets(inputs: Inputs) -> list[named_sets.PlannedSet]:
    """Return the sets that were planned."""
    return named_sets.read_merges(inputs.table(MERGES))


def read_set_marginals(inputs: Inputs) -> list[Marginal]:
    """Return the noisy joint tables of the sets that were measured; none where no look measured sets."""
    if not inputs.list_looks(LookKind.SETS):
        return []
    queries, answers = pool_answers(*inputs.all_noisy(LookKind.SETS))
    noisy = {q.attributes: (y, q.sigma) for q, y in zip(queries, answers, strict=True)}
    return named_sets.build_set_marginals(read_sets(inputs), noisy)
