"""The steps of a release, declared: name, kind, what goes in, what comes out, and the pure function.

Belongs here: the declaration of each step and the few lines that hand tables to tasks/ and take tables
back.  Does not belong here: Prefect, files, the ledger and noise (flows/shell.py adds them to every step
by its kind), and any algorithm.

``STEPS`` is the wiring: the flow follows it, docs/architecture.md draws it, and tests hold both against it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_contracts import tables
from data_contracts.artifacts import Kind
from data_contracts.domain import Domain
from data_contracts.publication import WORDS, WRITTEN
from data_contracts.receipts import Query
from flows.errors import RequestError
from flows.step import MEASURE, Batches, Inputs, Output, Progress, ReleaseStep, Request, Step, Wide, countable
from tasks import (
    append_attributes,
    combine_cliques,
    compress_domain,
    decode,
    encode,
    indif_scores,
    make_consistent,
    marginals,
    measure_marginals,
    one_way_marginals,
    select_pairs,
    shards,
    synthesize,
)
from tasks.kernels.counting import CodeTable, Countable


def _columns(request: Request, unused: AbstractSet[str] = WORDS) -> dict[str, Any]:
    """The released columns without the fields ``unused``."""
    return {n: c.model_dump(mode="json", exclude=set(unused)) for n, c in request.spec.released_columns.items()}


def _encode(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    encoding, repairs = request.encoding, encode.Repairs()
    rows = _unless_changed(encode.encode(request.rows, encoding, request.spec.unit, repairs), request)
    domain = encoding.domain
    profile = lambda batches: tables.profile_codes(batches, domain)  # noqa: E731
    return {"encoded_rows": Wide(tables.code_schema(domain), rows, profile), "repairs": repairs.to_table}


def _unless_changed(batches: Batches, request: Request) -> Batches:
    """Pass batches through; RequestError at the end, before anything is kept, if the data changed meanwhile."""
    yield from batches
    if not request.unchanged():
        raise RequestError("the private table changed while it was read", "Run again once it is complete", "data")


def _compress(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    queries, answers = inputs.noisy("one_way_marginals")
    encoding, settings = request.encoding, request.spec.compression
    recode = compress_domain.compress_domain(answers, queries, encoding.groups, settings, encoding.in_order)
    return {"recode": compress_domain.recode_to_table(recode, request.encoding.labels())}


def _recode(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    recode = inputs.recode()
    rows = compress_domain.recode_rows(inputs.batches("encode.encoded_rows"), recode)
    return {"recoded_rows": wide_codes(rows, compress_domain.coarse_domain(recode), padded=True)}


def wide_codes(batches: Batches, domain: Domain, *, padded: bool = False) -> Wide:
    """A table of codes as a step's output."""
    profile = lambda b: tables.profile_codes(b, domain, padded=padded)  # noqa: E731
    return Wide(tables.code_schema(domain, padded=padded), batches, profile)


def _select(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    queries, answers = inputs.noisy("indif_scores")
    scores, rho = [float(a[0]) for a in answers], float(request.stage_rho("measure_marginals"))
    how = (inputs.recode(), rho, request.records, request.spec.selection)
    return {"pairs": select_pairs.select(queries, scores, *how, again=request.spec.split.again)}


def _combine(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    domain, fine = inputs.domain(), request.encoding.domain
    pairs = inputs.table("select_pairs.pairs")
    weighed = combine_cliques.weighed_cliques(pairs, domain, fine, request.spec.selection)
    return {"cliques": combine_cliques.cliques_to_table(weighed, domain, fine)}


def consistent(request: Request, inputs: Inputs) -> tuple[compress_domain.Recode, list[marginals.Marginal]]:
    """The recoding with all that was measured pooled in, and the consistent marginals."""
    recode = inputs.refined(request.encoding)
    domain = compress_domain.coarse_domain(recode)
    one_way, variance = make_consistent.coarse_one_ways(recode)
    measured = make_consistent.measured_marginals(*inputs.measured(), domain)
    settings, sigmas = request.spec.consistency, [m.sigma for m in measured]
    found = make_consistent.make_consistent(
        one_way, variance, measured, sigmas, settings.rounds, firm=settings.firm, shrink=settings.shrink
    )
    return recode, found


def _consistent(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    return {"marginals": marginals.to_table(consistent(request, inputs)[1])}


def _synthesize(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    domain = inputs.domain()
    found = marginals.from_table(inputs.table("make_consistent.marginals"), domain)
    core = append_attributes.core_marginals(found, domain)
    total = compress_domain.noisy_total(inputs.refined(request.encoding))
    settings = request.spec.synthesis
    found_shards = shards.shards(synthesize.output_rows(total, settings), settings)

    def batches() -> Batches:
        left: shards.Leftovers = {}
        for s in found_shards:
            told = partial(_told, progress, s)
            codes = synthesize.synthesize(core.marginals, core.domain, settings, s.rows, request.threads, told, s, left)
            yield from codes.to_arrow().to_batches()

    return {"core_codes": wide_codes(batches(), core.domain)}


def _told(progress: Progress, shard: shards.Shard, done: int, total: int) -> None:
    """Progress over all shards."""
    progress(shard.number * total + done, shard.of * total)


def _append(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    domain = inputs.domain()
    found = marginals.from_table(inputs.table("make_consistent.marginals"), domain)
    core = append_attributes.core_marginals(found, domain)
    name = "synthesize.core_codes"

    def batches() -> Batches:
        for s, part in shards.in_shards(inputs.batches(name), _shards(request, inputs, name)):
            rows = CodeTable.from_arrow(part, core.domain)
            yield from append_attributes.append_attributes(rows, found, domain, s.own_seed).to_arrow().to_batches()

    return {"codes": wide_codes(batches(), domain)}


def _shards(request: Request, inputs: Inputs, name: str) -> list[shards.Shard]:
    """The shards of a table of synthetic rows."""
    return shards.shards(inputs.stored(name).num_rows, request.spec.synthesis)


def _decode(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    recode, encoding = inputs.refined(request.encoding), request.encoding
    domain, name = compress_domain.coarse_domain(recode), "append_attributes.codes"
    found = _shards(request, inputs, name)

    def rows() -> Batches:
        for s, part in shards.in_shards(inputs.batches(name), found):
            codes = CodeTable.from_arrow(part, domain)
            yield from decode.decode(codes, recode, encoding, request.column_order, s.own_seed)

    ranges = {name: encoding.ranges()[name] for name in request.column_order}
    profile = lambda batches: tables.profile_values(batches, ranges)  # noqa: E731
    schema = decode.decoded_schema(encoding, request.column_order)
    return {"synthetic": Wide(schema, rows(), profile, shards.part_rows(found))}


def _plan_one_way(request: Request, inputs: Inputs) -> list[Query]:
    rho, equal = request.stage_rho("one_way_marginals"), request.spec.split.one_ways == "equal"
    return one_way_marginals.plan(request.encoding.domain, rho, request.records, equal=equal)


def _plan_indif(request: Request, inputs: Inputs) -> list[Query]:
    against_noisy = request.spec.selection.scores == "one_ways"
    sensitivity = indif_scores.REFERENCE_SENSITIVITY if against_noisy else indif_scores.SENSITIVITY
    rho, largest = request.stage_rho("indif_scores"), request.spec.selection.max_cells
    return indif_scores.plan(inputs.domain(), rho, request.records, sensitivity, largest)


def _reference(request: Request, inputs: Inputs) -> indif_scores.Reference | None:
    return indif_scores.Reference.of(inputs.recode()) if request.spec.selection.scores == "one_ways" else None


def plan_measure(
    request: Request, inputs: Inputs, stage: str = MEASURE, chosen: str = "combine_cliques.cliques"
) -> list[Query]:
    """The plan of a measuring step, from the table of what was chosen."""
    weights = combine_cliques.cliques_from_table(inputs.table(chosen))
    rho = request.stage_rho(stage)
    return measure_marginals.plan(weights, inputs.domain(), request.encoding.domain, rho, request.records)


def _exact_measure(
    request: Request, inputs: Inputs, rows: Countable, queries: list[Query]
) -> Iterator[NDArray[np.int64]]:
    fine = lambda: countable(request, inputs.stored(ENCODED), request.encoding.domain)  # noqa: E731
    return measure_marginals.exact(rows, fine, queries, request.threads)


def stage(request: Request, name: str) -> dict[str, Any]:
    """The settings of a release step that every such step has."""
    return {"rho": str(request.stage_rho(name)), "records": request.records}


def _choice(request: Request) -> dict[str, Any]:
    return request.spec.selection.model_dump(include={"choice", "max_cells"})


RELEASED = {"noisy": tables.NOISY, "receipts": tables.RECEIPTS}
RECODE = "compress_domain.recode"
ENCODED = "encode.encoded_rows"
MEASURED = ("measure_marginals.noisy", "measure_marginals.receipts")

ENCODE = Step(
    "encode",
    "Encode",
    Kind.TRANSFORM,
    (),
    {"encoded_rows": tables.ENCODED_ROWS, "repairs": tables.REPAIRS},
    lambda r: {
        "columns": _columns(r, WORDS | WRITTEN),
        "unit": r.spec.unit.model_dump(),
        "null_values": r.spec.null_values,
        "order": r.column_order,
    },
    _encode,
    version=2,
)
ONE_WAY_MARGINALS = ReleaseStep(
    "one_way_marginals",
    "One-way marginals",
    Kind.RELEASE,
    (ENCODED,),
    RELEASED,
    lambda r: {**stage(r, "one_way_marginals"), "one_ways": r.spec.split.one_ways},
    plan=_plan_one_way,
    exact=lambda r, i, rows, queries: one_way_marginals.exact(rows, queries, r.threads),
    rows=ENCODED,
    rows_domain=lambda r, i: r.encoding.domain,
)
COMPRESS_DOMAIN = Step(
    "compress_domain",
    "Compress domain",
    Kind.POSTPROCESS,
    ("one_way_marginals.noisy", "one_way_marginals.receipts"),
    {"recode": tables.RECODE},
    lambda r: r.spec.compression.model_dump(),
    _compress,
    version=2,
)
RECODE_ROWS = Step(
    "recode_rows",
    "Recode rows",
    Kind.TRANSFORM,
    (ENCODED, RECODE),
    {"recoded_rows": tables.RECODED_ROWS},
    lambda r: None,
    _recode,
)
INDIF_SCORES = ReleaseStep(
    "indif_scores",
    "InDif scores",
    Kind.RELEASE,
    ("recode_rows.recoded_rows", RECODE),
    RELEASED,
    lambda r: {**stage(r, "indif_scores"), **r.spec.selection.model_dump(include={"scores", "max_cells"})},
    plan=_plan_indif,
    exact=lambda r, i, rows, queries: indif_scores.exact(rows, queries, r.threads, _reference(r, i)),
    rows="recode_rows.recoded_rows",
    rows_domain=lambda r, i: i.domain(),
    padded=True,
)
SELECT_PAIRS = Step(
    "select_pairs",
    "Select pairs",
    Kind.POSTPROCESS,
    ("indif_scores.noisy", "indif_scores.receipts", RECODE),
    {"pairs": tables.PAIRS},
    lambda r: {**stage(r, "measure_marginals"), "again": r.spec.split.again, **_choice(r)},
    _select,
    version=3,
)
COMBINE_CLIQUES = Step(
    "combine_cliques",
    "Combine cliques",
    Kind.POSTPROCESS,
    ("select_pairs.pairs", RECODE),
    {"cliques": tables.CLIQUES},
    lambda r: {**_choice(r), "gamma": r.spec.selection.gamma if r.spec.selection.combine_cliques else None},
    _combine,
    version=2,
)
MEASURE_MARGINALS = ReleaseStep(
    "measure_marginals",
    "Measure marginals",
    Kind.RELEASE,
    ("recode_rows.recoded_rows", ENCODED, RECODE, "combine_cliques.cliques"),
    RELEASED,
    lambda r: stage(r, "measure_marginals"),
    plan=plan_measure,
    exact=_exact_measure,
    rows="recode_rows.recoded_rows",
    rows_domain=lambda r, i: i.domain(),
    padded=True,
)
MAKE_CONSISTENT = Step(
    "make_consistent",
    "Make consistent",
    Kind.POSTPROCESS,
    (RECODE, *MEASURED),
    {"marginals": tables.MARGINALS},
    lambda r: r.spec.consistency.model_dump(),
    _consistent,
    version=5,
)
SYNTHESIZE = Step(
    "synthesize",
    "Synthesize",
    Kind.POSTPROCESS,
    ("make_consistent.marginals", RECODE, *MEASURED),
    {"core_codes": tables.SYNTHETIC_CODES},
    lambda r: r.spec.synthesis.model_dump(),
    _synthesize,
    version=6,
)
APPEND_ATTRIBUTES = Step(
    "append_attributes",
    "Append attributes",
    Kind.POSTPROCESS,
    ("synthesize.core_codes", "make_consistent.marginals", RECODE),
    {"codes": tables.SYNTHETIC_CODES},
    lambda r: r.spec.synthesis.model_dump(include={"seed", "shard_rows"}),
    _append,
)
DECODE = Step(
    "decode",
    "Decode",
    Kind.POSTPROCESS,
    ("append_attributes.codes", RECODE, *MEASURED),
    {"synthetic": tables.SYNTHETIC},
    lambda r: {
        **r.spec.synthesis.model_dump(include={"seed", "shard_rows"}),
        "order": r.column_order,
        "columns": _columns(r),
    },
    _decode,
    version=3,
)

STEPS = (
    ENCODE,
    ONE_WAY_MARGINALS,
    COMPRESS_DOMAIN,
    RECODE_ROWS,
    INDIF_SCORES,
    SELECT_PAIRS,
    COMBINE_CLIQUES,
    MEASURE_MARGINALS,
    MAKE_CONSISTENT,
    SYNTHESIZE,
    APPEND_ATTRIBUTES,
    DECODE,
)
"""Every step, in the paper's order; each step's inputs are outputs of earlier ones."""


def step_named(name: str) -> Step:
    """The declared step of that name; StopIteration if there is none."""
    return next(step for step in STEPS if step.name == name)
