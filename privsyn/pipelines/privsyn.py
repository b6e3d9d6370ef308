"""PrivSyn (paper, Algorithm 3): one-ways, scores of all pairs, the chosen marginals, consistency, rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import Kind
from privsyn.data_contracts.domain import Clique
from privsyn.data_contracts.mechanism_options import PrivSyn
from privsyn.data_contracts.receipts import Query
from privsyn.data_contracts.step_options import Selection
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import Look, Output, Progress, PublishedFile, ReleaseStep, Step
from privsyn.pipelines.common_steps import (
    COMPRESS_DOMAIN,
    ENCODE,
    ENCODED,
    ONE_CELL,
    RECODE,
    RELEASED,
    build_one_way_step,
    get_options_as,
    list_wide_codes,
    publish_noisy,
    read_one_way_counts,
)
from privsyn.pipelines.pairs_of_prior import key_prior_pairs
from privsyn.pipelines.synthesis_steps import build_row_steps
from privsyn.tasks.codecs.level_codecs import list_level_attributes
from privsyn.tasks.estimation.recode import build_coarse_domain
from privsyn.tasks.estimation.reference import Expected, Reference
from privsyn.tasks.estimation.target_weights import Targets
from privsyn.tasks.kernels.counting import Countable
from privsyn.tasks.knowledge.prior_pairs import PriorPairs
from privsyn.tasks.steps import combine_cliques, compress_domain, indif_scores, measure_marginals, select_pairs

RECODED = "recode_rows.recoded_rows"
CHOSEN = "combine_cliques.cliques"
JOINT, ALONE = "joint counts of the related columns", "counts of single columns once more"
WHOLE = Fraction(1)
"""The whole budget."""


def get_options(request: Request) -> PrivSyn:
    """Return the request's options.  Raises TypeError if it asks for another mechanism."""
    return get_options_as(request, PrivSyn)


def _recode(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    recode = inputs.recode()
    rows = compress_domain.recode_rows(inputs.batches(ENCODED), recode)
    return {"recoded_rows": list_wide_codes(rows, build_coarse_domain(recode), padded=True)}


RECODE_ROWS = Step(
    "recode_rows",
    "Recode rows",
    Kind.TRANSFORM,
    (ENCODED, RECODE),
    {"recoded_rows": tables.RECODED_ROWS},
    lambda r: None,
    _recode,
)


def _plan_scores(selection: Selection, request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
    noisy_reference = selection.scores == "one_ways"
    sensitivity = indif_scores.REFERENCE_SENSITIVITY if noisy_reference else indif_scores.SENSITIVITY
    domain, known = inputs.domain(), set(() if request.totals is None else request.totals.pairs)
    levels = set(list_level_attributes(request.encoding.levels))  # of one code, and so related to nothing
    known |= {pair for pair in combinations(domain.attributes, 2) if levels & {*pair}}
    return indif_scores.plan_queries(domain, rho, request.records, sensitivity, selection.max_cells, known)


def _list_known_pairs(request: Request) -> dict[str, Any]:
    """Return the pairs whose counts are known and get no score; nothing without any."""
    pairs = () if request.totals is None else request.totals.pairs
    return {"known": sorted(pairs)} if pairs else {}


def _score_exactly(
    selection: Selection, request: Request, inputs: Inputs, rows: Countable, queries: list[Query]
) -> Iterator[NDArray[np.int64]]:
    recode = inputs.recode() if selection.scores == "one_ways" else None
    reference: Expected | None = None
    if recode is not None:
        known = request.prior
        reference = Reference.of(recode) if known is None else PriorPairs.of(known, recode)
    return indif_scores.count_exactly(rows, queries, request.threads, reference)


def _explain_score_share(selection: Selection) -> str:
    if selection.scores == "one_ways":
        return (
            "k: against the noisy one-ways, released before, each of a person's k records changes "
            "one count by 1, so the L1 distance by at most 1; rounding down to whole records keeps it"
        )
    return "4k: PrivSyn, Lemma 4, for each of a person's k records; rounding down to whole records keeps it"


def build_scores_step(selection: Callable[[Request], Selection], share: Callable[[Request], Fraction]) -> ReleaseStep:
    """Return noisy scores of all pairs as ``selection`` says (which distance, which pairs), with this part of rho."""
    return ReleaseStep(
        "indif_scores",
        "InDif scores",
        Kind.RELEASE,
        (RECODED, RECODE),
        RELEASED,
        lambda r: {
            **selection(r).model_dump(include={"scores", "max_cells"}),
            **key_prior_pairs(r),
            **_list_known_pairs(r),
        },
        plan=lambda r, inputs, rho: _plan_scores(selection(r), r, inputs, rho),
        exact=lambda r, inputs, rows, queries: _score_exactly(selection(r), r, inputs, rows, queries),
        share=share,
        look=Look(
            "how strongly each pair of columns is related",
            lambda r: _explain_score_share(selection(r)),
            noise_of="a score",
        ),
        rows=RECODED,
        rows_domain=lambda r, i: i.domain(),
        padded=True,
        published=publish_noisy("scores", "the strength of relation of each pair"),
    )


INDIF_SCORES = build_scores_step(lambda r: get_options(r).selection, lambda r: get_options(r).split.exact()[1])


def read_noisy_scores(inputs: Inputs) -> dict[tuple[str, str], float]:
    """Pair -> noisy score, of a step that reads the scores."""
    queries, answers = inputs.noisy("indif_scores")
    return {(q.attributes[0], q.attributes[1]): float(y[0]) for q, y in zip(queries, answers, strict=True)}


def weigh_evenly(cliques: Sequence[Clique], request: Request, inputs: Inputs) -> pa.Table:
    """Return the contract CLIQUES: all of one weight; without any, the one-ways are measured again."""
    domain, fine = inputs.domain(), request.encoding.domain
    weighed = combine_cliques.with_one_ways(dict.fromkeys(cliques, 1.0), 0.0, fine)
    return combine_cliques.tabulate_cliques(weighed, domain, fine)


def _key_criterion(request: Request) -> dict[str, Any]:
    selection = get_options(request).selection
    return {"choice": selection.criterion, "max_cells": selection.max_cells}


def get_targets(request: Request) -> Targets:
    """Return the attributes of the columns and sets of columns that the spec wants to count more."""
    focus, of = request.spec.focus, request.encoding.attributes_of
    named = tuple((frozenset(of(m.columns)), m.weight) for m in request.spec.workload)
    return Targets(named=named) if focus is None else Targets(frozenset(of(focus.columns)), focus.weight, named)


def key_choice(request: Request, measure: ReleaseStep) -> dict[str, Any]:
    """Return the settings of every choice of what ``measure`` is to measure; targets where there are any."""
    again = get_options(request).split.remeasure_one_ways
    return {**measure.priced(request), "again": again, **request.spec.targets()}


def select_step(measure: ReleaseStep) -> Step:
    """Return the choice of pairs by their noisy scores, for the budget of the step ``measure``."""

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        queries, answers = inputs.noisy("indif_scores")
        scores, rho = [float(a[0]) for a in answers], float(measure.rho(request))
        options = get_options(request)
        how = (inputs.recode(), rho, request.records, options.selection)
        again, targets = options.split.remeasure_one_ways, get_targets(request)
        return {"pairs": select_pairs.select(queries, scores, *how, remeasure_one_ways=again, targets=targets)}

    return Step(
        "select_pairs",
        "Select pairs",
        Kind.POSTPROCESS,
        (*read_one_way_counts(["indif_scores"]), RECODE),
        {"pairs": tables.PAIRS},
        lambda r: {**key_choice(r, measure), **_key_criterion(r)},
        run,
        version=4,
        words=lambda r: (
            f"pairs of columns are chosen by their noisy scores "
            f"({get_options(r).selection.criterion.replace('_', ' ')})"
            + ("; targets of the request count more" if r.spec.targets() else "")
        ),
    )


def _combine(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    domain, fine = inputs.domain(), request.measured_alone
    pairs = inputs.table("select_pairs.pairs")
    weighed = combine_cliques.weigh_cliques(pairs, domain, fine, get_options(request).selection)
    return {"cliques": combine_cliques.tabulate_cliques(weighed, domain, fine)}


def _compute_gamma(request: Request) -> int | None:
    selection = get_options(request).selection
    return selection.gamma if selection.combine_cliques else None


COMBINE_CLIQUES = Step(
    "combine_cliques",
    "Combine cliques",
    Kind.POSTPROCESS,
    ("select_pairs.pairs", RECODE),
    {"cliques": tables.CLIQUES},
    lambda r: {**_key_criterion(r), "gamma": _compute_gamma(r)},
    _combine,
    version=2,
)


def measure_step(
    name: str, title: str, chosen: str, share: Fraction, look: Look, files: Mapping[str, PublishedFile]
) -> ReleaseStep:
    """Return noisy marginals of the cliques in the table ``chosen``, which share this part of the budget by weight."""

    def plan(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
        weights = combine_cliques.read_cliques(inputs.table(chosen))
        return measure_marginals.plan_queries(weights, inputs.domain(), request.encoding.domain, rho, request.records)

    def exact(request: Request, inputs: Inputs, rows: Countable, queries: list[Query]) -> Iterator[NDArray[np.int64]]:
        fine = lambda: inputs.countable(ENCODED, request.encoding.domain)  # noqa: E731
        return measure_marginals.count_exactly(rows, fine, queries, request.threads)

    return ReleaseStep(
        name,
        title,
        Kind.RELEASE,
        (RECODED, ENCODED, RECODE, chosen),
        RELEASED,
        lambda r: {},
        plan=plan,
        exact=exact,
        share=lambda r: share,
        look=look,
        rows=RECODED,
        rows_domain=lambda r, i: i.domain(),
        padded=True,
        published=files,
    )


def build_first_measurement(share: Fraction, chosen: str = CHOSEN) -> ReleaseStep:
    """Return the paper's measurement of the marginals in the table ``chosen``, with this share of the budget."""
    look = Look(JOINT, lambda r: ONE_CELL, alone=ALONE)
    files = publish_noisy("measured", "has the joint counts, cell by cell, the last attribute running fastest")
    step = measure_step("measure_marginals", "Measure marginals", chosen, share, look, files)
    return replace(
        step, limit="Relations of three and more columns are only kept where they follow from those measured."
    )


def build_up_to_measurement(options: PrivSyn, measurement: Fraction, part: Fraction = WHOLE) -> tuple[Step, ...]:
    """Return the steps up to the first measurement, which has the share ``measurement`` of the budget.

    ``part``: the part of the whole budget that these steps share; ``measurement`` is of that part.
    """
    split, measure = options.split, build_first_measurement(measurement * part)
    return (
        ENCODE,
        build_one_way_step(split.exact()[0] * part, split.one_ways),
        COMPRESS_DOMAIN,
        RECODE_ROWS,
        INDIF_SCORES if part == WHOLE else replace(INDIF_SCORES, share=lambda r: split.exact()[1] * part),
        select_step(measure),
        COMBINE_CLIQUES,
        measure,
    )


def privsyn(request: Request) -> tuple[Step, ...]:
    """Return the steps of PrivSyn, in the paper's order; each step's inputs are outputs of earlier ones."""
    steps = map_steps(get_options(request))
    return steps if request.prior is None else tuple(with_scores(s) for s in steps)


def with_scores(step: Step) -> Step:
    """Return the steps that ask the noisy scores whether the prior is to be followed read them."""
    if step.name not in ("synthesize", "append_attributes"):
        return step
    return replace(step, inputs=(*step.inputs, *read_one_way_counts(["indif_scores"])))


def map_steps(options: PrivSyn) -> tuple[Step, ...]:
    """Return the steps by these options."""
    return (*build_up_to_measurement(options, options.split.exact()[2]), *build_row_steps(["measure_marginals"]))


STEPS = map_steps(PrivSyn())
"""The steps with the default options: what docs/architecture.md draws."""
