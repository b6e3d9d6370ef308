"""A tree of tables: each table of rows, with the table above it, is a table pair with the steps of linked rows.

The first table pair is like a release of two tables: it makes persons with their rows.  A further table pair makes
records and linked rows for each row above, which already exists (:func:`build_further_steps`).  A table pair is a
request with its part of the budget; the child table's name is a prefix of its steps' names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import StepKind
from privsyn.data_contracts.domain import Domain, choose_code_dtype
from privsyn.data_contracts.panels import MOST_PERSONS
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.spec_checks import list_named_columns
from privsyn.engine.inputs import Inputs
from privsyn.engine.request import Request
from privsyn.engine.step import (
    Batches,
    Output,
    Progress,
    PublishedFile,
    ReleaseStep,
    RowStream,
    Step,
    connect,
    fund,
    say,
)
from privsyn.pipelines import panel
from privsyn.pipelines.budget import split_budget
from privsyn.pipelines.common_steps import RECODE, list_released_tables
from privsyn.pipelines.rung_steps import follow_cuts
from privsyn.pipelines.synthesis_steps import (
    BESIDE_CONSISTENT,
    MAKE_CONSISTENT,
    MARGINALS,
    REFINE_CODES,
    REFINED,
    read_consistent,
)
from privsyn.tasks.estimation.smooth_counts import with_tails
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.panels.rows_above import Numbered, lay_persons_beside, number_persons, number_rows, read_values_above
from privsyn.tasks.steps.decode_linked import decode_linked

RECORDS, NUMBERS, ABOVE = "draw_records.codes", "draw_records.above", "above"
WITH_ROWS, WITHOUT_ROWS, OF_ROWS = "first.synthetic", "none.without_rows", "upper.synthetic"
"""Inputs of a further table pair: persons with rows of the first table pair, persons without, and the rows above."""


def build_steps(request: Request) -> tuple[Step, ...]:
    """Return the steps of a release of three or more tables: the steps of each table pair, the first pair first."""
    first, *further = request.table_pairs
    of_first = request.table_pairs[first]
    steps = [_place(request, step, first, {}) for step in _plan(panel.build_steps(of_first), of_first)]
    for name in further:
        pair_steps = _plan(build_further_steps(request, name), request.table_pairs[name])
        above, _ = request.spec.get_parent_table(name)
        names = {step.name: name_step(name, step.name) for step in pair_steps}
        names |= {"first": "decode", "none": "make_without_rows"}
        names |= {"upper": name_step(above, "decode")} if above in further else {}
        steps += [_place(request, step, name, names) for step in pair_steps]
    return tuple(sorted(steps, key=lambda step: not step.encodes))  # no table is read after the first look


def _plan(steps: Sequence[Step], pair_request: Request) -> tuple[Step, ...]:
    """Return the steps of a table pair, with its budget, the looks that they read and the cells that it chose."""
    return follow_cuts(connect(fund(steps, split_budget(pair_request))))


def name_step(table: str, step: str) -> str:
    """Return the name of a further table's step in the whole release."""
    return f"{table}__{step}"


def split_step_name(name: str) -> tuple[str, str]:
    """Return a step's further table (empty: the step is not of a further table), and its name in its table pair."""
    table, _, step = name.rpartition("__")
    return table, step


def _place(request: Request, step: Step, child: str, names: Mapping[str, str]) -> Step:
    """Return a pair's step as a step of the whole ``request``.

    ``names``: name in the pair -> name in the whole request, of the step and the steps that it reads (empty: same).
    """

    def restrict(whole: Request) -> Request:
        return step.restrict(whole.table_pairs[child])

    def rename(inputs: Inputs) -> Inputs:
        renamed = inputs.rename(names, child if step.encodes else None) if names else inputs
        return step.lend(request.table_pairs[child], renamed)

    def place(table: str) -> str:
        name, output = table.split(".")
        return f"{names.get(name, name)}.{output}"

    run = step.run
    # the key of a further table's noise includes the codes of the first two tables
    first = ("encode.repairs",) if names and not step.inputs else ()
    placed = replace(
        step,
        name=names.get(step.name, step.name),
        inputs=(*map(place, step.inputs), *first),
        cuts=place(step.cuts) if step.cuts else "",
        finer_inputs={place(table): place(finer) for table, finer in step.finer_inputs.items()},
        looks={},
        shares={},
        budgets=(),
        fields=(),
        settings=lambda r: step.build_key(r.table_pairs[child]),
        reads=(),
        inherits=(),
        run=None if run is None else lambda r, i, progress: run(restrict(r), rename(i), progress),
        words=lambda r: say(step.words, r.table_pairs[child]),
    )
    if names:
        files = {t: PublishedFile(_place_file(child, file.name)) for t, file in step.published.items()}
        placed = replace(placed, title=f"{child}: {step.title}", published=files, words="")
    if not isinstance(step, ReleaseStep) or not isinstance(placed, ReleaseStep):
        return placed
    look = replace(step.look, reason=lambda r: say(step.look.reason, r.table_pairs[child]))
    if names:
        look = replace(
            look,
            counted=f"{child}: {look.counted}",
            noise_of=f"{look.noise_of} of {child}",
            reason=lambda r: explain_sensitivity(r, child, say(step.look.reason, r.table_pairs[child])),
        )
    return replace(
        placed,
        plan=lambda r, i, rho: step.plan(restrict(r), rename(i), rho),
        exact=lambda r, i, rows, queries: step.exact(restrict(r), rename(i), rows, queries),
        shares={placed.name: step.share * request.table_pairs[child].budget_share / request.budget_share},
        look=look,
        rows=place(step.rows),
        rows_domain=lambda r, i: step.rows_domain(restrict(r), rename(i)),
    )


def _place_file(child: str, name: str) -> str:
    folder, _, file = name.rpartition("/")
    return f"{folder}/{child}/{file}"


def explain_sensitivity(request: Request, child: str, reason: str) -> str:
    """Return the reason for the sensitivity of a look at a further table; ``reason``: the pair's step gives it."""
    spec, one_person = request.spec, request.spec.unit.one
    above, _ = spec.get_parent_table(child)
    if above != spec.table_names[0]:
        drawn = (
            f"one row of {above} stands for each {one_person}, drawn by a rule that depends on that {one_person} alone"
        )
        return f"{reason}; read a row of {above} for a person here: {drawn}"
    return reason if one_person == "person" else f"{reason}; read a {one_person} for a person here"


def build_further_steps(request: Request, child: str) -> tuple[Step, ...]:
    """Return the steps of a further table, with their names in its table pair; ``request``: of all tables."""
    pair_request = request.table_pairs[child]
    return (
        *panel.build_looks(pair_request),
        REFINE_CODES,
        MAKE_CONSISTENT,
        _build_drawing_step(request, child),
        panel.build_linking_step(RECORDS),
        _build_decoding_step(request, child),
    )


def _list_tables_above(spec: ReleaseSpec, child: str) -> tuple[str, ...]:
    """Return the tables to read for the rows above a further table and the persons above those rows."""
    root, first, *_ = spec.table_names
    inputs = {root: (WITH_ROWS, WITHOUT_ROWS), first: (WITH_ROWS,)}
    return inputs.get(spec.get_parent_table(child)[0], (OF_ROWS, WITH_ROWS, WITHOUT_ROWS))


def _iterate_above(spec: ReleaseSpec, child: str, inputs: Inputs) -> Iterator[Numbered]:
    """Yield the rows of the table above with their persons' columns, and the rows' numbers."""
    root, first, *_ = spec.table_names
    above, _ = spec.get_parent_table(child)
    if above == first:
        yield from number_rows(inputs.batches(WITH_ROWS))
        return
    _, key = spec.get_parent_table(first)
    of_persons = number_persons(inputs.batches(WITH_ROWS), inputs.batches(WITHOUT_ROWS), key)
    if above == root:
        yield from of_persons
    else:
        rows = number_rows(inputs.batches(OF_ROWS))
        yield from lay_persons_beside(rows, of_persons, key)


def _list_ruled_columns(pair_request: Request) -> tuple[str, ...]:
    """Return the columns above that a further table's rules name."""
    spec = pair_request.spec
    named = list_named_columns(spec, spec.released_columns, spec.row_words)
    ruled = {name for place, names in named if place[0] == "rules" for name in names}
    return tuple(name for name in spec.released_columns if name in ruled & pair_request.parent_columns)


def _build_drawing_step(whole_request: Request, child: str) -> Step:
    """Return the step that draws a record for each row of the table above that has rows below."""
    spec = whole_request.spec

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        from privsyn.tasks.steps import draw_records  # here: it loads SciPy

        recode, domain, seed = inputs.recode(), inputs.domain(), request.spec.mechanism.synthesis.seed
        by_code, sets = read_consistent(request, inputs)
        consistent = [*by_code, *sets]
        number, codes = draw_records.encode_above(_iterate_above(spec, child, inputs), request.encoding, recode)
        chosen = draw_records.choose_above(codes, inputs.noisy_counts("measure_without_rows"), consistent, seed)
        codes = {a: np.ascontiguousarray(code[chosen]) for a, code in codes.items()}
        records = draw_records.draw_records(codes, consistent, domain, seed, request.threads)
        of_numbers = Domain.of({ABOVE: MOST_PERSONS})
        numbers = CodeTable(of_numbers, (number[chosen].astype(choose_code_dtype(MOST_PERSONS)),))
        return {
            "codes": RowStream.of_codes(records.to_arrow().to_batches(), domain),
            ABOVE: RowStream.of_codes(numbers.to_arrow().to_batches(), of_numbers),
        }

    return Step(
        name="draw_records",
        title="Draw records",
        kind=StepKind.POSTPROCESS,
        inputs=(MARGINALS, RECODE, *list_released_tables("measure_without_rows"), *_list_tables_above(spec, child)),
        may_read=BESIDE_CONSISTENT,
        outputs={"codes": tables.SYNTHETIC_CODES, ABOVE: tables.ROWS_ABOVE},
        fields=("mechanism.synthesis.seed",),
        run=run,
        limit=f"Rows of {child} follow from the columns of the tables above it, and from no other table.",
    )


def _build_decoding_step(whole_request: Request, child: str) -> Step:
    """Return the step that decodes the rows of a further table: its columns, and the number of the row above."""
    spec, ruled = whole_request.spec, _list_ruled_columns(whole_request.table_pairs[child])

    def run(request: Request, inputs: Inputs, progress: Progress) -> Mapping[str, Output]:
        plan = with_tails(inputs.read_pooled_recode(), request.encoding)[1]
        released, key = request.spec.released_columns, plan.get_order()[0].person
        order = [name for name in request.spec.tables[child].columns if name in released]
        above = np.concatenate([np.empty(0, np.int64), *(np.asarray(b.column(0)) for b in inputs.batches(NUMBERS))])
        values = read_values_above(_iterate_above(spec, child, inputs), above, plan, ruled) if ruled else {}

        def rows() -> Batches:
            linked, seed = inputs.batches(panel.LINKED), request.synthesis.seed
            for batch in decode_linked(linked, plan, order, seed, values):
                number = pa.array(above[np.asarray(batch.column(key)) - 1], pa.int64())
                yield batch.set_column(batch.schema.get_field_index(key), batch.schema.field(key), number)

        return {"synthetic": RowStream.of_values(rows(), plan.list_table_ranges(order))}

    return Step(
        name="decode",
        title="Decode",
        kind=StepKind.POSTPROCESS,
        inputs=(panel.LINKED, NUMBERS, RECODE, *REFINED, *(_list_tables_above(spec, child) if ruled else ())),
        outputs={"synthetic": tables.SYNTHETIC},
        fields=panel.DECODE.fields,
        settings=lambda r: {"order": list(r.spec.tables[child].columns)},
        reads=panel.DECODE.reads,
        run=run,
    )
