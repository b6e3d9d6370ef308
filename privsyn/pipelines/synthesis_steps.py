"""The last steps of every mechanism: from noisy counts to the synthetic table, by post-processing only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import Kind
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.mechanism_options import PrivSyn
from privsyn.data_contracts.step_options import Consistency, Synthesis
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import Batches, Output, Progress, PublishedFile, Step, Wide
from privsyn.pipelines.common_steps import RECODE, key_columns, key_totals, list_wide_codes, read_one_way_counts
from privsyn.pipelines.pairs_of_prior import build_followed_prior, key_prior_pairs, trusts_prior
from privsyn.tasks.estimation import known_zeros, marginals
from privsyn.tasks.estimation.recode import Recode, build_coarse_domain, estimate_total, sum_coarse_one_ways
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.knowledge import hold_totals, prior_pairs
from privsyn.tasks.knowledge.totals_and_rules import list_held_by_rules
from privsyn.tasks.steps import append_attributes, decode, make_consistent, synthesize
from privsyn.tasks.synthesis import shards

MARGINALS = "make_consistent.marginals"


def get_consistency(request: Request) -> Consistency:
    """Return the settings of consistency: the mechanism's, or the defaults where it has none."""
    options = request.spec.mechanism
    return options.consistency if isinstance(options, PrivSyn) else Consistency()


def key_consistency(request: Request) -> dict[str, Any]:
    """Return the settings of consistency by the names that they have in keys."""
    settings = get_consistency(request)
    return {"rounds": settings.rounds, "firm": settings.one_way_weight, "shrink": settings.shrink}


def get_synthesis(request: Request) -> Synthesis:
    """Return the settings of synthesis: the mechanism's, or the defaults where it has rows and seed only."""
    options = request.spec.mechanism.synthesis
    return options if isinstance(options, Synthesis) else Synthesis(**options.model_dump())


def key_synthesis(request: Request) -> dict[str, Any]:
    """Return the settings of synthesis by the names that they have in keys.

    ``kappa`` was one until 0.3.0, and was 0.
    """
    return {**get_synthesis(request).model_dump(), "kappa": 0.0}


def pool_one_ways(request: Request, inputs: Inputs, stages: Sequence[str]) -> Recode:
    """Return the recoding with all one-ways that ``stages`` measured."""
    return inputs.refined(request.encoding, request.spec.mechanism.compression, stages)


def read_consistent_marginals(
    request: Request, inputs: Inputs, stages: Sequence[str]
) -> tuple[Recode, list[marginals.Marginal]]:
    """Return the recoding with all that ``stages`` measured pooled in, and the consistent marginals."""
    recode = pool_one_ways(request, inputs, stages)
    domain = build_coarse_domain(recode)
    one_way, variance = sum_coarse_one_ways(recode)
    measured = make_consistent.build_measured_marginals(*inputs.measured(stages), domain)
    totals, settings = request.totals, get_consistency(request)
    measured += [] if totals is None else totals.coarse_pairs(recode)
    sigmas = [m.sigma for m in measured]
    return recode, make_consistent.make_consistent(
        one_way,
        variance,
        measured,
        sigmas,
        settings.rounds,
        one_way_weight=settings.one_way_weight,
        shrink=settings.shrink,
        zeros=find_forbidden_codes(request, recode),
        expected=None if request.prior is None else prior_pairs.PriorPairs.of(request.prior, recode).coarse,
        known=totals,
    )


def find_forbidden_codes(request: Request, recode: Recode) -> known_zeros.KnownZeros | None:
    """Return the coarse codes that the request's rules, or its prior by ``zeros``, forbid together.

    None without such.
    """
    found = known_zeros.build_known_zeros(request.encoding, recode) if request.spec.rules else None
    prior = request.spec.prior
    if prior is None or not prior.zeros or request.prior is None:
        return found
    absent = prior_pairs.list_absent_pairs(request.prior, recode)
    return known_zeros.KnownZeros((*(() if found is None else found.tables), *absent))


def _join_shards(kept: frozenset[str], domain: Domain, prior: prior_pairs.Followed | None) -> frozenset[str]:
    return kept if prior is None else frozenset(domain.attributes)


def tie_blocks(zeros: known_zeros.KnownZeros | None) -> frozenset[str]:
    """Return the attributes that rules tie to others: they are made together with these."""
    return frozenset() if zeros is None else zeros.tied


KEEPING_RULES = 4
"""The version of how rows come to keep rules; a part of keys where there are rules."""


def key_rules(request: Request) -> dict[str, Any]:
    """Return the rules by the name that they have in keys.

    Nothing without rules, as in keys of before there were any.
    """
    rules = [r.model_dump(mode="json", by_alias=True) for r in request.spec.rules]
    return {"rules": rules, "keeping_rules": KEEPING_RULES} if rules else {}


def build_consistency_step(stages: Sequence[str]) -> Step:
    """Consistency of the one-ways and of what ``stages`` measured."""

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        return {"marginals": marginals.to_table(read_consistent_marginals(request, inputs, stages)[1])}

    return Step(
        "make_consistent",
        "Make consistent",
        Kind.POSTPROCESS,
        (RECODE, *read_one_way_counts(stages)),
        {"marginals": tables.MARGINALS},
        lambda r: {**key_consistency(r), **key_rules(r), **key_prior_pairs(r), **key_totals(r)},
        run,
        version=8,
        published={"marginals": PublishedFile("marginals/consistent.parquet")},
        words=lambda r: "all noisy counts are brought into agreement and to one total, without negative ones",
    )


def synthesize_step(stages: Sequence[str]) -> Step:
    """Yield rows that follow the consistent marginals, as many as ``stages`` and the one-ways say."""

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        domain = inputs.domain()
        zeros = find_forbidden_codes(request, inputs.recode())
        consistent = marginals.from_table(inputs.table(MARGINALS), domain)
        recode = pool_one_ways(request, inputs, stages)
        prior = build_followed_prior(request, inputs, recode, consistent)
        core = append_attributes.select_core_marginals(
            consistent, domain, _join_shards(tie_blocks(zeros), domain, prior)
        )
        total = estimate_total(recode) if request.totals is None else request.totals.rows
        settings = get_synthesis(request)
        wanted = shards.plan_shards(synthesize.compute_output_rows(total, settings), settings)

        def batches() -> Batches:
            left: shards.Leftovers = {}
            for s in wanted:
                report = partial(_report, progress, s)
                codes = synthesize.synthesize(
                    core.marginals, core.domain, settings, s.rows, request.threads, report, s, left, zeros, prior
                )
                yield from codes.to_arrow().to_batches()

        return {"core_codes": list_wide_codes(batches(), core.domain)}

    return Step(
        "synthesize",
        "Synthesize",
        Kind.POSTPROCESS,
        (MARGINALS, RECODE, *read_one_way_counts(stages)),
        {"core_codes": tables.SYNTHETIC_CODES},
        lambda r: {**key_synthesis(r), **key_rules(r), **key_prior_pairs(r), **key_totals(r)},
        run,
        version=10,
        words=_describe_rows,
    )


_METHODS = {
    "sweep": "rows drawn along a tree of related columns, then moved value by value towards all counts at once",
    "gum": "rows updated gradually towards the counts (PrivSyn, section 5)",
}


def _describe_rows(request: Request) -> str:
    settings = get_synthesis(request)
    auto = settings.rows == "auto"
    rows = "as many as the noisy counts say" if auto else f"{settings.rows:,}, as the request asks"
    return f"synthetic rows: {_METHODS[settings.method]}; {rows}"


def _report(progress: Progress, shard: shards.Shard, done: int, total: int) -> None:
    """Progress over all shards."""
    progress(shard.number * total + done, shard.of * total)


def _list_shards(request: Request, inputs: Inputs, name: str) -> list[shards.Shard]:
    """Return the shards of a table of synthetic rows."""
    return shards.plan_shards(inputs.stored(name).num_rows, request.spec.mechanism.synthesis)


def _append(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    domain = inputs.domain()
    consistent = marginals.from_table(inputs.table(MARGINALS), domain)
    kept = tie_blocks(find_forbidden_codes(request, inputs.recode()))
    if request.prior is not None and trusts_prior(request, inputs):
        kept = frozenset(domain.attributes)
    core = append_attributes.select_core_marginals(consistent, domain, kept)
    name = "synthesize.core_codes"
    quotas = hold_totals.Quotas(() if request.totals is None else request.totals.coarse_held(inputs.recode()))

    def batches() -> Batches:
        for s, part in shards.iterate_shards(inputs.batches(name), _list_shards(request, inputs, name)):
            rows = CodeTable.from_arrow(part, core.domain)
            whole = append_attributes.append_attributes(rows, consistent, domain, s.own_seed, kept)
            whole = hold_totals.hold(whole, quotas.take(s.rows), hold_totals.seed_generator(s.own_seed))
            yield from whole.to_arrow().to_batches()

    return {"codes": list_wide_codes(batches(), domain)}


APPEND_ATTRIBUTES = Step(
    "append_attributes",
    "Append attributes",
    Kind.POSTPROCESS,
    ("synthesize.core_codes", MARGINALS, RECODE),
    {"codes": tables.SYNTHETIC_CODES},
    lambda r: {
        **r.spec.mechanism.synthesis.model_dump(include={"seed", "shard_rows"}),
        **key_rules(r),
        **key_prior_pairs(r),
        **key_totals(r),
    },
    _append,
    version=2,
)


CODES = "append_attributes.codes"


def decode_step(stages: Sequence[str], name: str = CODES) -> Step:
    """Yield the synthetic table: values of the codes, combined ones by all that ``stages`` and the one-ways measured.

    ``name``: the table of the codes, which is the step's first input.
    """

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        recode, encoding = pool_one_ways(request, inputs, stages), request.encoding
        domain = build_coarse_domain(recode)
        parts, held = _list_shards(request, inputs, name), list_held_by_rules(request.totals, encoding)

        def rows() -> Batches:
            for s, part in shards.iterate_shards(inputs.batches(name), parts):
                codes = CodeTable.from_arrow(part, domain)
                yield from decode.decode(codes, recode, encoding, request.column_order, s.own_seed, held)

        ranges = {name: encoding.ranges()[name] for name in request.column_order}
        profile = lambda batches: tables.make_value_examples(batches, ranges)  # noqa: E731
        schema = decode.build_decoded_schema(encoding, request.column_order)
        return {"synthetic": Wide(schema, rows(), profile, shards.compute_part_rows(parts))}

    return Step(
        "decode",
        "Decode",
        Kind.POSTPROCESS,
        (name, RECODE, *read_one_way_counts(stages)),
        {"synthetic": tables.SYNTHETIC},
        lambda r: {
            **r.spec.mechanism.synthesis.model_dump(include={"seed", "shard_rows"}),
            "order": r.column_order,
            "columns": key_columns(r),
            **key_rules(r),
            **({"together": r.spec.together} if r.spec.together else {}),
        },
        run,
        version=6,
        words=lambda r: f"codes become values; {_describe_inside_bins(r)}; rows come in random order",
    )


def _describe_inside_bins(request: Request) -> str:
    falling = ", in wide bins as the noisy counts of their cells fall" if request.encoding.wide else ""
    common = ", those of columns that move together at one place of their bins" if request.spec.together else ""
    return f"inside a bin values are drawn evenly{falling}{common}{_describe_never_read(request)}"


def _describe_never_read(request: Request) -> str:
    """Return what is said of columns that are not measured; nothing without any."""
    names = ", ".join(request.spec.unmeasured_columns)
    return f"; columns that are not measured are drawn evenly from their public domains: {names}" if names else ""


def build_row_steps(stages: Sequence[str]) -> tuple[Step, ...]:
    """Return the last steps of every mechanism.

    From the one-ways and what ``stages`` measured to the synthetic table.
    """
    return build_consistency_step(stages), synthesize_step(stages), APPEND_ATTRIBUTES, decode_step(stages)
