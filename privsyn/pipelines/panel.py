"""Linked rows of persons: PrivSyn over one record per person, transitions between rows, and rows made from both.

A person's record is one of the person's rows, with the number of rows, the number of rows before it, and the gap to the
next row.

Persons of the table above who have no rows are counted by their columns, and made beside the linked persons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import LookKind, StepKind
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.linked_tables import get_above
from privsyn.data_contracts.panels import name_all_rows
from privsyn.data_contracts.receipts import Query
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import (
    COLUMN_ORDER,
    DECODED_COLUMNS,
    Batches,
    LookDescription,
    Output,
    Progress,
    ReleaseStep,
    RowStream,
    Step,
    write_together,
)
from privsyn.pipelines import one_shot
from privsyn.pipelines.common_steps import (
    ENCODE_WITH_NUMBERS,
    RECODE,
    RELEASED,
    count_cells,
    list_released_tables,
    publish_noisy,
)
from privsyn.pipelines.rung_steps import NUMBERS_OF
from privsyn.pipelines.synthesis_steps import BY_TREND, CODES, MARGINALS, REFINED, SHARDS, build_row_steps
from privsyn.tasks.codecs import EncodingPlan, encode_rows
from privsyn.tasks.estimation import marginals
from privsyn.tasks.estimation.recode import Recode, build_coarse_domain, estimate_total
from privsyn.tasks.estimation.smooth_counts import with_tails
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.knowledge.public_knowledge import KnowledgePart
from privsyn.tasks.panels.choose_rows import build_runs_domain, runs_to_batches
from privsyn.tasks.panels.transitions import TransitionCodes, build_transition_codes, refine_weights
from privsyn.tasks.steps import encode, measure_marginals
from privsyn.tasks.steps.decode_linked import build_linked_domain, decode_linked, linked_to_arrow
from privsyn.tasks.synthesis import shards

if TYPE_CHECKING:
    from privsyn.tasks.panels.link_members import MemberLinker
    from privsyn.tasks.panels.link_rows import Linker

ROWS_WITHOUT = "list_without_rows.without_rows"


def _list(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    rows = encode.list_without_rows(inputs.batches("encode.without_rows"), request.encoding, inputs.recode())
    return {"without_rows": RowStream.of_codes(rows, _build_without_domain(request, inputs))}


LIST_WITHOUT_ROWS = Step(
    name="list_without_rows",
    title="List persons without rows",
    about="persons that have no row",
    when="`tables`",
    kind=StepKind.TRANSFORM,
    only_with_look="measure_without_rows",
    inputs=("encode.without_rows", RECODE),
    outputs={"without_rows": tables.WITHOUT_ROWS},
    inherits=(KnowledgePart.CODES,),
    run=_list,
)


def _build_without_domain(request: Request, inputs: Inputs) -> Domain:
    return encode.build_without_domain(inputs.recode(), request.encoding)


MEASURE_WITHOUT_ROWS = ReleaseStep(
    name="measure_without_rows",
    title="Measure persons without rows",
    about="their columns, one by one",
    when="`tables`",
    measures=LookKind.WITHOUT_ROWS,
    inputs=(ROWS_WITHOUT, RECODE),
    outputs=RELEASED,
    inherits=(KnowledgePart.CODES,),
    plan=lambda r, i, rho: measure_marginals.plan_one_ways(_build_without_domain(r, i), rho, r.records),
    exact=count_cells,
    look=LookDescription(
        counted="counts of persons, or households, without rows, by each of their columns",
        reason=lambda r: f"1: a {r.spec.unit.one} without rows is one record, which depends on that {r.spec.unit.one}",
        noise_of="a count of those without rows",
    ),
    rows=ROWS_WITHOUT,
    rows_domain=_build_without_domain,
    published=publish_noisy("without_rows", "counts persons, or households, without rows by each of their columns"),
    limit="Persons, or households, without rows were counted by one column at a time.",
)


def _make(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    from privsyn.tasks.steps import draw_records  # here: it loads SciPy

    plan, recode, rows = request.encoding, inputs.recode(), request.spec.mechanism.synthesis.rows
    noisy = inputs.noisy_counts("measure_without_rows")
    scale = 1.0 if rows == "auto" else rows / max(estimate_total(recode), 1.0)
    above, order = get_above(request.spec.tables)[1].columns, request.column_order
    seed = request.spec.mechanism.synthesis.seed
    batches_without_rows = draw_records.make_without_rows(
        inputs.batches("link_rows.linked"), plan, recode, noisy, order, above, seed, scale
    )
    return {"without_rows": RowStream.of_values(batches_without_rows, draw_records.list_ranges(plan, order, above))}


MAKE_WITHOUT_ROWS = Step(
    name="make_without_rows",
    title="Make persons without rows",
    about="as many as the noisy counts say",
    when="`tables`",
    kind=StepKind.POSTPROCESS,
    inputs=("link_rows.linked", RECODE, *list_released_tables("measure_without_rows")),
    outputs={"without_rows": tables.SYNTHETIC_WITHOUT_ROWS},
    fields=(DECODED_COLUMNS, COLUMN_ORDER, "mechanism.synthesis.seed", "mechanism.synthesis.rows"),
    reads=(KnowledgePart.RULES,),
    run=_make,
    words="those without rows are like the others, in the shares of their own noisy counts",
)


def build_steps(request: Request) -> tuple[Step, ...]:
    """Return the steps of a release of linked rows."""
    above = request.encoding.get_order()[0].above
    *row_steps, _ = build_row_steps(request)
    return *build_looks(request), *row_steps, build_linking_step(), *((MAKE_WITHOUT_ROWS,) if above else ()), DECODE


NoisyTables: TypeAlias = Mapping[str, tuple[NDArray[np.float64], float]]
"""Attribute -> its noisy counts, and their sigma."""

TRANSITIONS = "measure_transitions"
KEPT, PAIRS, LINKED = "keep_rows.kept", "pair_rows.pairs", "link_rows.linked"
ROWS, RUNS = "encode.rows_of_persons", "encode.runs"
NUMBERS = f"encode.{NUMBERS_OF['rows_of_persons']}"


def build_encode_step(request: Request) -> Step:
    """Return the step that encodes persons: their records, all kept rows, and the runs of each person's rows.

    Adding or removing one person adds or removes one record, the person's kept rows, and nothing else.
    """
    outputs = {"encoded_rows": tables.ENCODED_ROWS, "rows_of_persons": tables.ROWS_OF_PERSONS}
    outputs |= {"without_rows": tables.ROWS_OF_PERSONS}
    outputs |= dict.fromkeys(_list_numbers(request.encoding), tables.NUMBERS)
    outputs |= {"runs": tables.RUNS, "repairs": tables.REPAIRS}
    kept = tuple(name for name in outputs if name not in ("encoded_rows", "repairs"))
    return replace(ENCODE_WITH_NUMBERS, outputs=outputs, run=_encode_persons, transient=kept)


def _encode_persons(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    plan, rows, repairs = request.encoding, inputs.private.rows, encode_rows.Repairs()
    persons = encode.PersonEncoding.of(rows, plan)
    row_stream = RowStream.of_codes((), plan.row_plan.domain)
    streams = {
        "encoded_rows": RowStream.of_codes((), plan.domain),
        "rows_of_persons": row_stream,
        "without_rows": row_stream,
    }
    numbered = _list_numbers(plan)
    streams |= dict.fromkeys(numbered, RowStream.of_numbers((), plan))

    batches = (
        (made.records, made.kept, made.without, *(getattr(made, name) for name in numbered))
        for made in persons.encode(rows, plan, repairs)
    )
    domain = build_runs_domain(plan)
    return {
        **write_together(streams, inputs.private.check_unchanged(batches), inputs.work),
        "runs": RowStream.of_codes(runs_to_batches(persons.list_runs(), domain), domain),
        "repairs": repairs.to_table,
    }


def _list_numbers(plan: EncodingPlan) -> tuple[str, ...]:
    """Return the tables of numbers to store: all if cells are chosen, the rows' numbers if only rows are compared."""
    if plan.on_ladder:
        return tuple(NUMBERS_OF.values())
    return (NUMBERS_OF["rows_of_persons"],) if encode_rows.list_comparable(plan) else ()


def _build_codes(request: Request, inputs: Inputs) -> dict[str, TransitionCodes]:
    """Return attribute -> codes of its table of transitions; empty if the release measures no transitions."""
    rho = inputs.rho[TRANSITIONS]
    return build_transition_codes(request.encoding, inputs.recode(), rho) if rho else {}


def _build_pair_domain(request: Request, inputs: Inputs) -> Domain:
    return encode.build_pair_domain(_build_codes(request, inputs), request.encoding)


def _pair(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    stored = encode.StoredRows(*(partial(inputs.batches, name) for name in (ROWS, NUMBERS, RUNS)))
    rows = encode.pair_rows(stored, request.encoding, _build_codes(request, inputs))
    return {"pairs": RowStream.of_codes(rows, _build_pair_domain(request, inputs), padded=True)}


PAIR_ROWS = Step(
    name="pair_rows",
    title="Pair rows",
    about="a row of each person with the next one",
    when="linked rows whose columns change",
    kind=StepKind.TRANSFORM,
    only_with_look=TRANSITIONS,
    budgets=(TRANSITIONS,),
    inputs=(ROWS, RUNS, RECODE),
    may_read=(NUMBERS,),
    outputs={"pairs": tables.PAIRED_ROWS},
    fields=("panel.constant", "panel.with_order"),
    inherits=(KnowledgePart.CODES,),
    run=_pair,
    version=2,
)
"""Pairs one row of each person, or one member of each household, with the next."""


MEASURE_TRANSITIONS = ReleaseStep(
    name=TRANSITIONS,
    title="Measure transitions",
    about="a row's codes by the next row's",
    when="linked rows whose columns change",
    measures=LookKind.TRANSITIONS,
    inputs=(PAIRS, RECODE),
    outputs=RELEASED,
    inherits=(KnowledgePart.CODES,),
    plan=lambda r, i, rho: encode.plan_transition_queries(r.encoding, _build_pair_domain(r, i), rho, r.records),
    exact=count_cells,
    look=LookDescription(
        counted="counts of a row's value by the next row's, from one pair of rows per person (two per household)",
        reason=lambda r: (
            f"1: one record of a pair of rows is drawn from each {r.spec.unit.one}, by a rule that knows it alone"
        ),
        noise_of="a count of pairs",
    ),
    rows=PAIRS,
    rows_domain=_build_pair_domain,
    padded=True,
    published=publish_noisy(
        "transitions",
        "counts, for each code of a row, the codes of the next row (the last code means unchanged). In households it "
        "counts the next member by kind of pair, and a later member beside the first",
    ),
    limit="A row follows only from the row before it, the person's constants and the row's other columns. In a "
    "household it also follows from the first member.",
)


def _build_kept_domain(request: Request, inputs: Inputs) -> Domain:
    return encode.build_kept_domain(request.encoding, inputs.recode())


def _keep(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    rows = encode.keep_rows(inputs.batches(ROWS), request.encoding, inputs.recode())
    return {"kept": RowStream.of_codes(rows, _build_kept_domain(request, inputs), padded=True)}


KEEP_ROWS = Step(
    name="keep_rows",
    title="Keep rows",
    about="all rows of each person in the combined codes",
    when="linked rows of persons",
    kind=StepKind.TRANSFORM,
    only_with_look="measure_rows",
    inputs=(ROWS, RECODE),
    outputs={"kept": tables.KEPT_ROWS},
    inherits=(KnowledgePart.CODES,),
    run=_keep,
    version=2,
)


def _plan_rows(request: Request, inputs: Inputs, rho: Fraction) -> list[Query]:
    domain, most = _build_kept_domain(request, inputs), request.spec.unit.records
    return measure_marginals.plan_one_ways(domain, rho, most, equal=False)


MEASURE_ROWS = ReleaseStep(
    name="measure_rows",
    title="Measure rows",
    about="every column over all rows",
    when="linked rows of persons",
    measures=LookKind.LINKED_ROWS,
    inputs=(KEPT, RECODE),
    outputs=RELEASED,
    inherits=(KnowledgePart.CODES,),
    plan=_plan_rows,
    exact=count_cells,
    look=LookDescription(
        counted="counts of every column over all rows",
        reason=lambda r: f"K: all {r.spec.unit.records} rows kept for a person may fall into one cell",
        noise_of="a count of rows",
    ),
    rows=KEPT,
    rows_domain=_build_kept_domain,
    padded=True,
    published=publish_noisy("rows", "has for every column how many rows have each code, over all rows of all persons"),
)


LINKING = (*SHARDS, "mechanism.synthesis.related_inside", "panel.constant", "panel.with_order")

LINKED_LOOKS = (PAIR_ROWS, MEASURE_TRANSITIONS, KEEP_ROWS, MEASURE_ROWS, LIST_WITHOUT_ROWS, MEASURE_WITHOUT_ROWS)
"""The steps of the looks at all rows of persons."""


def _read_rows(inputs: Inputs) -> NoisyTables:
    """Return column -> noisy counts of rows, and their sigma."""
    by_name = {query.attributes[0]: (counts, query.sigma) for query, counts in inputs.noisy_counts("measure_rows")}
    return {a: by_name[name_all_rows(a)] for a in inputs.domain().attributes if name_all_rows(a) in by_name}


def _read_transitions(inputs: Inputs, codes: Mapping[str, TransitionCodes]) -> NoisyTables:
    """Return attribute -> noisy counts of its codes by its codes in the next row, and their sigma."""
    return {
        (a := q.attributes[0]): (c.reshape(codes[a].size, -1), q.sigma) for q, c in inputs.noisy_counts(TRANSITIONS)
    }


def _read_pairs(inputs: Inputs, codes: Mapping[str, TransitionCodes]) -> tuple[NoisyTables, NoisyTables]:
    """Return the noisy counts of pairs of members, and their sigma: of neighbours, and of the first and a later member.

    The second is empty if households have at most two members.
    """
    sizes = [codes[a].size for a in (*codes, *codes)]
    tables = [
        (counts.reshape(-1, size, size), query.sigma)
        for (query, counts), size in zip(inputs.noisy_counts(TRANSITIONS), sizes, strict=False)
    ]
    return dict(zip(codes, tables, strict=False)), dict(zip(codes, tables[len(codes) :], strict=False))


def _build_member_linker(
    request: Request,
    plan: EncodingPlan,
    recode: Recode,
    consistent: Sequence[marginals.Marginal],
    codes: Mapping[str, TransitionCodes],
    pairs: tuple[NoisyTables, NoisyTables],
) -> MemberLinker:
    """Return the linker that makes members of households from noisy ``pairs`` of members (:func:`_read_pairs`)."""
    from privsyn.tasks.panels.link_members import (
        MemberLinker,  # these here: compiled code loads slowly
        estimate_kinds,
    )

    zeros = request.public.in_codes({**recode, **{a: c.recode for a, c in codes.items()}}).zeros
    kinds = estimate_kinds(plan, recode, consistent, codes, *pairs, zeros)
    return MemberLinker(plan, recode, consistent, codes, kinds, request.threads)


def _build_row_linker(
    request: Request,
    plan: EncodingPlan,
    recode: Recode,
    consistent: Sequence[marginals.Marginal],
    codes: Mapping[str, TransitionCodes],
    noisy_transitions: NoisyTables,
    counts_of_rows: NoisyTables,
) -> Linker:
    """Return the linker that makes the rows before and after a record from noisy transitions and counts of rows."""
    from privsyn.tasks.panels.link_rows import Linker  # these here: compiled code loads slowly
    from privsyn.tasks.panels.transitions import count_pairs, estimate_transition

    one_ways = marginals.list_one_ways(consistent)
    number = count_pairs(plan, recode, one_ways) if noisy_transitions else 0.0
    transitions = {}
    for a, (table, sigma) in noisy_transitions.items():
        shares = one_ways[a] @ codes[a].split
        shares = shares / max(shares.sum(), 1e-9)
        apart = codes[a].measure_apart(plan.get_codec(a).count_values())
        transitions[a] = estimate_transition(table, sigma, shares, number, apart, codes[a].ordered)
    return Linker(plan, recode, consistent, codes, transitions, counts_of_rows, request.threads)


def build_linking_step(codes_table: str = CODES) -> Step:
    """Return the step that makes persons with linked rows from their records, the codes in ``codes_table``."""

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        from privsyn.tasks.panels.link_rows import Linker  # these here: compiled code loads slowly
        from privsyn.tasks.synthesis.fine_codes import fit_related_places

        recode, plan = with_tails(inputs.read_pooled_recode(), request.encoding)
        follows, counted = (bool(inputs.list_looks(kind)) for kind in (LookKind.TRANSITIONS, LookKind.LINKED_ROWS))
        domain = build_coarse_domain(recode)
        consistent = marginals.from_table(inputs.table(MARGINALS), domain)
        if inputs.has(BY_TREND):
            consistent = [*consistent, *marginals.from_table(inputs.table(BY_TREND), domain)]
        codes = refine_weights(_build_codes(request, inputs), recode)
        linker: Linker | MemberLinker
        if plan.get_order()[0].household:
            pairs = _read_pairs(inputs, codes) if follows else ({}, {})
            linker = _build_member_linker(request, plan, recode, consistent, codes, pairs)
        else:
            transitions = _read_transitions(inputs, codes) if follows else {}
            counts = _read_rows(inputs) if counted else {}
            linker = _build_row_linker(request, plan, recode, consistent, codes, transitions, counts)
        related, asked_pairs = request.synthesis.related_inside, request.list_asked_pairs(domain.attributes)
        # records of rows that already exist keep their number and order
        link = linker.link_each if request.has_parent_rows and isinstance(linker, Linker) else linker.link
        parts = shards.plan_shards(inputs.stored(codes_table).num_rows, request.spec.mechanism.synthesis)

        def rows() -> Batches:
            first = 0
            for s, part in shards.iterate_shards(inputs.batches(codes_table), parts):
                progress(s.number, s.count)
                records = CodeTable.from_arrow(part, domain)
                places = fit_related_places(records, recode, plan.binning, asked_pairs) if related else None
                linked = link(records, s.own_seed, places)
                yield linked_to_arrow(linked, plan, first)
                first += int(linked.person.max(initial=-1)) + 1

        return {"linked": RowStream.of_codes(rows(), build_linked_domain(plan))}

    return Step(
        name="link_rows",
        title="Link rows",
        about="each record becomes a person with rows before and after",
        when="linked rows",
        kind=StepKind.POSTPROCESS,
        budgets=(TRANSITIONS,),
        inputs=(codes_table, MARGINALS, RECODE, *REFINED),
        may_read=(BY_TREND,),
        look_kinds=(LookKind.TRANSITIONS, LookKind.LINKED_ROWS),
        outputs={"linked": tables.LINKED_ROWS},
        fields=LINKING,
        reads=(KnowledgePart.ACROSS,),
        inherits=(KnowledgePart.RULES,),
        run=run,
        version=3,
        words="each record becomes a person with rows before and after it, by the noisy transitions",
    )


def _decode(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
    plan = with_tails(inputs.read_pooled_recode(), request.encoding)[1]
    order, settings = request.column_order, request.synthesis
    rows = decode_linked(inputs.batches(LINKED), plan, order, settings.seed)
    parts = shards.plan_shards(inputs.stored(LINKED).num_rows, settings)
    sizes = shards.compute_open_part_rows(parts)  # persons who break a rule may be left out
    return {"synthetic": RowStream.of_values(rows, plan.list_table_ranges(order), sizes)}


DECODE = Step(
    name="decode",
    title="Decode",
    kind=StepKind.POSTPROCESS,
    inputs=(LINKED, RECODE, *REFINED),
    outputs={"synthetic": tables.SYNTHETIC},
    fields=(*LINKING, DECODED_COLUMNS, COLUMN_ORDER),
    reads=(KnowledgePart.RULES, KnowledgePart.ACROSS),
    run=_decode,
    words="codes become values; rows come person by person, with new identifiers, in their order",
)


def build_looks(request: Request) -> tuple[Step, ...]:
    """Return the steps up to the last look: PrivSyn's over one record per person, and the looks at all rows."""
    return *one_shot.build_looks(build_encode_step(request)), *LINKED_LOOKS
