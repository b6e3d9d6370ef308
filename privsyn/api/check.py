"""``spec check``: what a spec would do, before anything is spent.

Nothing is drawn, spent or written; the command notes that a table was checked (privsyn/engine/checked_tables.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from itertools import combinations
from math import comb, prod
from typing import Any

import numpy as np

from privsyn.base.errors import LedgerError, RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.artifacts import LookKind
from privsyn.data_contracts.columns import IntegerColumn, NumberColumn
from privsyn.data_contracts.csv_options import USUAL_NULLS
from privsyn.data_contracts.domain import Clique
from privsyn.data_contracts.focus import NamedMarginal
from privsyn.data_contracts.linked_tables import name_one_place
from privsyn.data_contracts.promise import Unit
from privsyn.data_contracts.receipts import compute_sigma
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.rules import list_computed_columns
from privsyn.data_contracts.spec_checks import get_step
from privsyn.engine.checks import check_keepable
from privsyn.engine.choose_accountant import assume_accountant, describe_use_after, read_dataset_summary
from privsyn.engine.plan import Plan, Stage, account_rho
from privsyn.engine.policy_checks import check_public_inputs, check_table
from privsyn.engine.progress import format_html_table, format_paragraph
from privsyn.engine.request import Request
from privsyn.engine.step import release_steps
from privsyn.pipelines.budget import split_sets
from privsyn.pipelines.named_sets import MEASURE_SETS
from privsyn.pipelines.registry import plan_release
from privsyn.pipelines.table_pairs import split_step_name
from privsyn.publish.release_note import list_score_steps
from privsyn.sources.joined_source import JoinedSource
from privsyn.sources.open_source import open_source
from privsyn.sources.private_table import Source, Table
from privsyn.specs.draft import decimals_of_type
from privsyn.specs.table_fit import TableFit, fit_of
from privsyn.tasks.codecs import Codec
from privsyn.tasks.codecs.cells import list_counted_alone
from privsyn.tasks.codecs.codec import UnreleasedCodec
from privsyn.tasks.codecs.derived import SplitCodec
from privsyn.tasks.codecs.encoding_plan import FIGURES, list_asked_thresholds
from privsyn.tasks.codecs.ordered import OrderedCodec
from privsyn.tasks.estimation.expected_error import NORMAL_MEAN_ABSOLUTE, split_by_weight
from privsyn.tasks.estimation.merged_codes import (
    CoarseCounts,
    count_affordable_cells,
    find_cut_conditions,
    find_idle_conditions,
    find_starts,
    merge_codes,
)
from privsyn.tasks.estimation.pair_departures import MOST_PAIRS, is_wide
from privsyn.tasks.estimation.rungs import bound_domain
from privsyn.tasks.privacy.accountant import cap_accountant

COMPARABLE = 3
"""Pairs of columns that might be compared that are named, at most."""

LEAST_SHARED_RANGE = 0.5
"""What the ranges of two columns that might be compared have in common at least, as a share of the wider one."""

MANY_CODES = 10_000
LARGE_EPSILON = 10.0
LARGE_DELTA = 1e-5
ASSUMED_MARGINAL_COUNTS = (10, 50, 200)
"""Numbers of chosen marginals for which noise is predicted."""

ASSUMED_ROWS = (1_000, 10_000, 100_000)
"""Numbers of rows for which the cells of named sets are predicted."""


@dataclass(frozen=True)
class NoiseLine:
    """Predicted noise: ``low`` and ``high`` are the smallest and largest standard deviation of a count, in records.

    ``queries``: the number of tables of counts that share the budget.
    """

    what: str
    queries: int
    low: float
    high: float


@dataclass(frozen=True)
class ColumnPlan:
    """A released column: its kind, its fine codes, and the bins that joint marginals use.

    ``chosen``: a first look chooses its cells, and both are the most that it may choose.
    """

    column: str
    kind: str
    codes: int
    bins: int
    chosen: bool = False


@dataclass(frozen=True)
class SetLine:
    """A named set as measured in a table of ``rows`` evenly spread rows.

    ``cells``: the number of merged codes of each column.  ``sd``: standard deviation of a count, in records.
    ``error``: the expected L1 error of the counts by noise alone, as a share of the rows.  ``questions``: the questions
    with these cells.  ``edges``: by column, the bin ends for their conditions alone.  ``table``: the further table of
    the set; empty for the first two, or the only one.
    """

    columns: tuple[str, ...]
    rows: int
    cells: tuple[int, ...]
    sd: float
    error: float
    questions: tuple[str, ...] = ()
    table: str = ""
    edges: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The columns, the questions with these cells, and the further table."""
        cells = f": the cells of {'; '.join(self.questions)}" if self.questions else ""
        if self.edges:
            ends = (f"{column} at {', '.join(labels)}" for column, labels in self.edges.items())
            cells += f", for which bins end in {'; '.join(ends)}"
        return ", ".join(self.columns) + cells + (f" (of {self.table})" if self.table else "")


@dataclass(frozen=True)
class CheckReport:
    """The effect of a spec: public findings and, if a table was given, its fit.

    ``further_tables``: further table of a tree -> its fit; ``accountant``: the rule that turns epsilon into noise, and
    why; ``shares``: look -> its exact share of the release's budget.  Privacy: ``warnings``, ``noise``, ``columns``,
    ``sets``, ``shares`` and ``budget`` follow from the spec and from the data set's cap and charges in the ledger.
    ``fit`` and ``further_tables`` are PRIVATE and not printed.
    """

    warnings: tuple[str, ...]
    noise: tuple[NoiseLine, ...]
    columns: tuple[ColumnPlan, ...]
    fit: TableFit | None = None
    sets: tuple[SetLine, ...] = ()
    further_tables: Mapping[str, TableFit] = field(default_factory=dict)
    accountant: str = ""
    budget: str = ""
    shares: Mapping[str, Fraction] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        return (
            format_html_table(("column", "kind", "codes", "bins"), self.columns_rows())
            + format_html_table(("look", "share of the budget"), self.share_rows())
            + format_html_table(("predicted noise of", "how many", "standard deviation"), self.noise_rows())
            + format_paragraph(f"Accountant {self.accountant}.", self.budget)
            + (format_html_table(SET_HEADERS, self.set_rows()) if self.sets else "")
            + format_html_table(("worth a thought",), [[warning] for warning in self.warnings])
        )

    def as_json(self) -> dict[str, Any]:
        """Return the same, JSON-ready.  ``fit``, None without a table, and ``further`` are PRIVATE."""
        fit = None if self.fit is None else _as_json(self.fit)
        noise, sizes = [asdict(line) for line in self.noise], [asdict(column) for column in self.columns]
        content: dict[str, Any] = {"warnings": list(self.warnings), "noise": noise, "columns": sizes, "fit": fit}
        content["accountant"], content["budget"] = self.accountant, self.budget
        content["shares"] = {look: str(share) for look, share in self.shares.items()}
        if self.further_tables:
            content["further_tables"] = {name: _as_json(fit) for name, fit in self.further_tables.items()}
        return {**content, "sets": [asdict(line) for line in self.sets]} if self.sets else content

    def columns_rows(self) -> list[list[str]]:
        """Return one row of text per column."""
        words = {True: "at most ", False: ""}
        return [[c.column, c.kind, *(f"{words[c.chosen]}{n:,}" for n in (c.codes, c.bins))] for c in self.columns]

    def set_rows(self) -> list[list[str]]:
        """Return one row of text per named set and assumed number of rows."""
        return [
            [s.name, f"{s.rows:,}", " x ".join(map(str, s.cells)), f"{s.sd:,.1f}", _format_share(s.error)]
            for s in self.sets
        ]

    def share_rows(self) -> list[list[str]]:
        """Return one row of text per look: what it counts, and its share of the budget."""
        return [[look, f"{float(share):.1%}"] for look, share in self.shares.items()]

    def noise_rows(self) -> list[list[str]]:
        """Return one row of text per look at the data."""
        return [
            [n.what, f"{n.queries:,}", " to ".join(dict.fromkeys((f"{n.low:,.1f}", f"{n.high:,.1f}")))]
            for n in self.noise
        ]


def _as_json(fit: TableFit) -> dict[str, Any]:
    columns = [{**vars(column), "repairs": dict(column.repairs)} for column in fit.columns]
    misread = [{"column": m.column, "shares": dict(m.repairs)} for m in fit.misread]
    advice = fit.advice.as_json()
    return {"private": True, **vars(fit), "columns": columns, "misread": misread, "advice": advice}


SET_HEADERS = ("measured together", "if the rows are", "cells", "sd", "expected error")
"""Of a row of :meth:`CheckReport.set_rows`."""


def check(spec: ReleaseSpec, source: Source | None = None, settings: Settings | None = None) -> CheckReport:
    """Return warnings, predicted noise and column sizes; with ``source`` also its fit, which is PRIVATE.

    ``settings``: name the ledger, which knows the accountant of a spec that names none; None: no ledger is asked.
    Raises RequestError if no row can keep the rules, reading the table fails, or the privacy cannot be accounted.
    """
    spec, reason = assume_accountant(spec, settings)
    public = plan_release(spec)
    public.check()
    check_keepable(public.request)
    columns = tuple(_plan_columns(public.request))
    warnings = [*_list_warnings(public), *_list_column_warnings(public.request, columns)]
    fit = None if source is None else fit_of(spec, source, public.request.encoding.row_plan.codecs)
    if source is not None:
        if spec.null_values != USUAL_NULLS and None not in source.types.values():
            warnings.append(
                "null_values: are texts of CSV files, and the table is not CSV: only what is null there is null."
            )
        warnings += _list_stored_decimals(spec, source)
    further = {}
    for name in spec.further_tables:
        pair_request, described = public.request.table_pairs[name], spec.tables[name].columns
        planned = tuple(_plan_columns(pair_request, name))
        columns += planned
        warnings += _list_column_warnings(pair_request, planned, name)
        if isinstance(source, JoinedSource):
            rows = source.joined[name].below[1]
            codecs = tuple(c for c in pair_request.encoding.row_plan.codecs if {*c.sources} <= {*described})
            further[name] = fit_of(pair_request.spec, rows, codecs, compares=False)
            warnings += _list_stored_decimals(_keep_own_columns(pair_request.spec, name), rows)
    accountant, sets = f"{spec.effective_accountant}: {reason}", tuple(_predict_sets(public))
    state = None
    if settings is not None:
        with suppress(LedgerError):  # a ledger that cannot be read counts as unused
            state = read_dataset_summary(spec.dataset, settings)
    use, epsilons = describe_use_after(spec, public.rho, state)
    budget = f"Budget after this release: {use} ({epsilons})."
    shares = {look.look.words: look.share for look in release_steps(public.steps)}
    noise = _describe_noise(public)
    return CheckReport(tuple(warnings), noise, columns, fit, sets, further, accountant, budget, shares)


def _keep_own_columns(spec: ReleaseSpec, table: str) -> ReleaseSpec:
    """Return the spec of a further table with its own columns alone, without those above."""
    return spec.with_columns({name: spec.columns[name] for name in spec.tables[table].columns})


def _name_column(spec: ReleaseSpec, column: str) -> str:
    """Return the field that describes a column, in its table where there are several."""
    table = next((name for name, table in spec.tables.items() if column in table.columns), None)
    return f"columns.{column}" if table is None else f"tables.{table}.columns.{column}"


def _plan_columns(request: Request, table: str = "") -> Iterator[ColumnPlan]:
    """Yield the plan of each column; for a further ``table``, its own columns and the figures of rows above."""
    spec, encoding = request.spec, request.encoding
    above = spec.columns.keys() - {*spec.tables[table].columns} if table else frozenset()
    table_suffix = f", of {table}" if table else ""
    place_column, most = name_one_place(table), bound_domain(encoding)  # a name that no column of the user's has
    for c in encoding.codecs:
        if c.attribute not in above and not c.attribute.startswith(place_column):
            of_above = f"of a row of {spec.table_names[0]}" if table and isinstance(c, FIGURES) else ""
            kind, bins = (of_above or _name_kind(spec, c)) + table_suffix, int(c.groups.max()) + 1
            added = most.size(c.attribute) - c.size
            yield ColumnPlan(c.attribute, kind, c.size + added, bins + added, chosen=added > 0)
    for c in encoding.computed:
        yield ColumnPlan(c.attribute, f"{_name_kind(spec, c)}, computed{table_suffix}", 0, 0)
    for name, column in spec.unmeasured_columns.items():
        if name not in above:
            yield ColumnPlan(name, f"{column.kind}, not measured{table_suffix}", 0, 0)


def open_for_check(spec: ReleaseSpec, data: Table | None, settings: Settings) -> Source | None:
    """Return the private table to check the spec against; None if none is given.

    Raises RequestError if the operator's policy forbids the table or a public file of the spec.
    """
    check_public_inputs(spec, settings)
    if data is None:
        return None
    check_table(spec.dataset, data, settings, "data")
    if spec.tables and not isinstance(data, Mapping):
        named = f"{'Name both' if len(spec.tables) == 2 else 'Name all'}: {' and '.join(spec.tables)}"
        raise RequestError(f"is one table, and the spec has {len(spec.tables)}", named, "data")
    if not spec.tables:
        return open_source(data, spec)
    rows_alone = spec.with_columns(spec.columns, Unit(records_per_person=1))  # no rows that stand for a lack of rows
    return open_source(data, rows_alone)


def _list_stored_decimals(spec: ReleaseSpec, source: Source) -> Iterator[str]:
    """Yield the columns of numbers without `decimals` whose stored type has a fixed number of decimals."""
    for name, column in spec.measured_columns.items():
        stored = source.types.get(name)
        decimals = None if stored is None else decimals_of_type(stored)
        if isinstance(column, NumberColumn) and _is_unrounded(column) and decimals is not None:
            yield f"{_name_column(spec, name)} is stored as {stored}: write `decimals: {decimals}`."


def _count_rows(number: int) -> str:
    return f"{number:,} row{'' if number == 1 else 's'}"


def _list_warnings(plan: Plan) -> list[str]:
    spec = plan.request.spec
    privacy, budget, unit = spec.privacy, spec.budget, spec.unit
    warnings = []
    prior = plan.request.prior
    if prior is not None:
        warnings.append(
            f"prior: {_count_rows(prior.rows)} that the spec states to be public: statistics of the prior show in the "
            "release, and its promise does not protect the persons in it."
        )
    if spec.cells is not None:
        warnings.append(
            f"cells: {', '.join(spec.cells.columns)} have the cells of {spec.cells.run}, so no first look is taken. "
            "Its share goes to the one-way marginals. The cells repeat what that release says."
        )
    totals = plan.request.public.totals
    if totals is not None:
        warnings.append(
            f"totals: counts of {_count_rows(totals.rows)} that the spec states to be public: its promise does "
            "not cover what they tell, and they must never be made from the private table."
        )
    if privacy.epsilon > LARGE_EPSILON:
        warnings.append(f"privacy.epsilon is {privacy.epsilon:g}: above {LARGE_EPSILON:g} a release protects little.")
    if privacy.delta >= LARGE_DELTA:
        warnings.append(f"privacy.delta is {privacy.delta:g}: it should be far below one over the number of people.")
    if plan.rho > account_rho(budget, "budget", cap_accountant(spec.effective_accountant)):
        warnings.append("privacy is larger than budget: the ledger will refuse this release.")
    if spec.records > 1:
        warnings.append(f"unit: every count gets {spec.records} times the noise of one record a person.")
    if spec.panel is not None:
        warnings.append(
            f"order: a {unit.one} is one record, whatever number of rows it has; of more than {spec.panel.most} rows "
            + ("the first by role are kept. " if spec.panel.household else "a run of neighbours is kept. ")
            + "What is constant, and what grows with the order, is your public statement."
        )
    warnings.extend(_explain_scored_pairs(plan))
    warnings.extend(_explain_idle_looks(plan))
    if unit.records_per_person == 1:
        warnings.append("unit.records_per_person is 1: the promise holds only if nobody has two rows.")
    if spec.csv.line_breaks:
        warnings.append(
            "csv.line_breaks is true: the promise holds only if every quotation mark of a CSV file is closed."
        )
    if isinstance(spec.mechanism.synthesis.rows, int):
        warnings.append("synthesis.rows is a number: it must not be the table's row count, which is private.")
    return warnings


def _list_column_warnings(request: Request, columns: tuple[ColumnPlan, ...], table: str = "") -> Iterator[str]:
    """Yield warnings about a request's columns (of the further ``table``, if any), and about questions on them."""
    prefix = f"tables.{table}." if table else ""
    for number, attribute, holds in find_idle_conditions(request.spec, request.encoding):
        how_many = "every" if holds else "no"
        yield (
            f"{prefix}workload[{number}].question: {how_many} value that {attribute} can have fulfils its condition, "
            "so it tells no rows apart. Correct the condition, or take it out."
        )
    for number, attribute, cells in find_cut_conditions(request.spec, request.encoding):
        many = "1 cell" if cells == 1 else f"{cells} cells"
        yield (
            f"{prefix}workload[{number}].question: its condition holds in a part of {many} of {attribute}, in which "
            f"values are taken to lie evenly. Compare {attribute} itself with a value, and its cells end there."
        )
    spec = _keep_own_columns(request.spec, table) if table else request.spec
    for name in spec.unmeasured_columns:
        yield (
            f"{_name_column(spec, name)} is not measured: it costs no budget, its values are drawn at random, and they "
            "tell nothing of the private table."
        )
    yield from _find_missing_zeros(spec)
    yield from _find_comparable_columns(spec)
    exact = [name for name, c in spec.measured_columns.items() if isinstance(c, NumberColumn) and _is_unrounded(c)]
    if exact:
        names = ", ".join(_name_column(spec, name) for name in exact)
        yield f"{names}: without `decimals`, values come out with up to 17 digits, whatever the source has."
    for c in columns:
        if c.codes > MANY_CODES:
            yield (
                f"{_name_column(spec, c.column)} has {c.codes:,} codes: noise will outweigh rare ones; merge values or "
                "use fewer bins."
            )


def _explain_scored_pairs(plan: Plan) -> Iterator[str]:
    """Yield the number of scored pairs of a wide table, and how they were chosen."""
    attributes = plan.domain.attributes
    if is_wide(attributes) and list_score_steps(plan.steps):
        yield (
            f"columns: of {comb(len(attributes), 2):,} pairs of {len(attributes):,} columns about {MOST_PAIRS:,} are "
            "scored: pairs of one block of names, such as q12_1 and q12_2, and of columns near each other. Other pairs "
            "follow from single counts and the scored pairs. Name a column in `focus` to score all its pairs."
        )


def _name_kind(spec: ReleaseSpec, codec: Codec) -> str:
    """Return the kind of the codec's column; the rounding of values, and each level, count as columns."""
    if codec.attribute in spec.columns:
        split = f", split by {codec.column}" if isinstance(codec, SplitCodec) else ""
        return f"{spec.columns[codec.attribute].kind}{split}"
    if isinstance(codec, FIGURES):
        return f"of a {spec.unit.one}"
    return codec.kind if isinstance(codec, UnreleasedCodec) else "one of"


def _is_unrounded(column: NumberColumn) -> bool:
    return column.decimals is None and column.step is None


def _find_missing_zeros(spec: ReleaseSpec) -> Iterator[str]:
    """Yield columns of amounts that begin at 0 and spread it over their first bin."""
    for name, column in spec.measured_columns.items():
        if not isinstance(column, NumberColumn) and (not isinstance(column, IntegerColumn) or column.edges is None):
            continue
        if spec.mechanism.compression.single_values and column.leaves_bins_open:
            continue
        edges, grid = column.edge_values(), column.grid()
        is_bin = grid is not None and edges[1] - edges[0] <= grid.step
        if edges[0] == 0 and not is_bin and 0 not in column.exact:
            field = _name_column(spec, name)
            yield (
                f"{field} begins at 0 without `exact: [0]`: zeros come out as any value of its first bin, "
                f"{edges[0]:g} to {edges[1]:g}."
            )


def _find_comparable_columns(spec: ReleaseSpec) -> Iterator[str]:
    """Yield at most COMPARABLE pairs of columns of one unit, step and similar range that ``compare`` does not name."""
    named = {name for pair in (*spec.compare, *spec.together) for name in pair} | set(list_computed_columns(spec.rules))
    columns = [
        (name, column)
        for name, column in spec.measured_columns.items()
        if isinstance(column, IntegerColumn | NumberColumn) and column.unit and name not in named
    ]
    alike = [
        (first, second)
        for (first, one), (second, other) in combinations(columns, 2)
        if (one.unit, get_step(one)) == (other.unit, get_step(other))
        and min(one.max, other.max) - max(one.min, other.min)
        >= LEAST_SHARED_RANGE * max(one.max - one.min, other.max - other.min, 1e-300)
    ]
    for first, second in alike[:COMPARABLE] if spec.order is None else ():
        yield (
            f"{_name_column(spec, first)} and {_name_column(spec, second)} have one unit and range: where it matters "
            f"whether one is below, equal to or above the other, write `compare: [[{first}, {second}]]`."
        )


def _list_idle_looks(plan: Plan) -> list[Stage]:
    """Return the looks at relations between pairs if no two columns can be related; they ask nothing."""
    counted_alone = set(list_counted_alone(plan.request.encoding.binning))
    if len(counted_alone.symmetric_difference(plan.domain.attributes)) > 1:
        return []
    return [stage for stage in plan.stages if stage.step.measures in (LookKind.SCORES, LookKind.RESIDUALS)]


def measures_no_pair(plan: Plan) -> bool:
    """Return whether the plan counts no two columns together, whatever the rows are."""
    return plan.request.spec.mechanism.name == "independent" or bool(_list_idle_looks(plan))


def _explain_idle_looks(plan: Plan) -> Iterator[str]:
    """Yield the share of the budget that is known beforehand to stay unspent."""
    if idle := _list_idle_looks(plan):
        share = float(sum((stage.rho for stage in idle), Fraction(0)) / plan.rho)
        yield (
            f"columns: no two columns could be related, so {_format_share(share)} of the budget, for scores of "
            "relations, is not spent. `mechanism: independent` gives all of it to the counts."
        )


def _describe_noise(plan: Plan) -> tuple[NoiseLine, ...]:
    """Return the noise of every look, for some assumed numbers of queries if noisy counts will decide them."""
    lines, idle = [], _list_idle_looks(plan)
    for stage in plan.stages:
        look = stage.step.look.words
        if stage in idle:
            continue
        if stage.step.measures is LookKind.VALUES:
            look = f"{look} (free if no value is frequent)"
        if (request := _find_request_of_sets(plan, stage)) is not None:
            sigmas = [sigma for _, sigma in _list_set_noise(request, stage)]
            lines += [NoiseLine(look, len(sigmas), min(sigmas), max(sigmas))] if sigmas else []
            continue
        if stage.queries is not None:
            sigmas = [q.sigma for q in stage.queries]
            lines.append(NoiseLine(look, len(sigmas), min(sigmas), max(sigmas)))
            continue
        for number in ASSUMED_MARGINAL_COUNTS:
            sigma = stage.sigma_if(plan.request, number)
            lines.append(NoiseLine(f"{look}, if this many are counted", number, sigma, sigma))
    return tuple(lines)


def _find_request_of_sets(plan: Plan, stage: Stage) -> Request | None:
    """Return the request, possibly a further table's, whose named sets a stage measures; None for another look."""
    table, step = split_step_name(stage.step.name)
    if step != MEASURE_SETS:
        return None
    return plan.request.table_pairs[table] if table else plan.request


def _predict_sets(plan: Plan) -> Iterator[SetLine]:
    """Yield the cells of every named set for assumed numbers of rows, each spread evenly over a column's bins."""
    for stage in plan.stages:
        request = _find_request_of_sets(plan, stage)
        if request is None:
            continue
        encoding, table = request.encoding, split_step_name(stage.step.name)[0]
        groups = {a: (bins.groups, bins.size) for a, bins in encoding.binning.items()}
        starts, marginals_by_clique = find_starts(request.spec, encoding, groups), _list_questions(request)
        for clique, sigma in _list_set_noise(request, stage):
            starts_of_set = starts.get(frozenset(clique), {})
            even = {
                a: CoarseCounts(
                    np.ones(groups[a][1]),
                    bool(encoding.binning[a].in_order),
                    **(starts_of_set[a]._asdict() if a in starts_of_set else {}),
                )
                for a in clique
            }
            for rows in ASSUMED_ROWS:
                merges = merge_codes(even, clique, count_affordable_cells(rows, sigma))
                cells = tuple(int(merge.max()) + 1 for merge in merges)
                error = min(2.0, NORMAL_MEAN_ABSOLUTE * sigma * prod(cells) / rows)
                marginals = marginals_by_clique.get(clique, [])
                texts = tuple(str(marginal.question) for marginal in marginals)
                yield SetLine(clique, rows, cells, sigma, error, texts, table, _list_edges(request, marginals))


def _list_edges(request: Request, questions: Sequence[NamedMarginal]) -> dict[str, tuple[str, ...]]:
    """Return column -> the edges inside its bounds that only the conditions of these questions need."""
    codecs = {codec.attribute: codec for codec in request.encoding.codecs if isinstance(codec, OrderedCodec)}
    labels_by_column = {}
    for name, edges in list_asked_thresholds(request.spec, questions).items():
        if name in codecs and (labels := codecs[name].label_further_edges(edges)):
            labels_by_column[name] = labels
    return labels_by_column


def _list_questions(request: Request) -> dict[Clique, list[NamedMarginal]]:
    encoding = request.encoding
    by_clique: dict[Clique, list[NamedMarginal]] = {}
    for marginal in request.spec.measured_sets:
        if marginal.question:
            clique = encoding.domain.ordered(encoding.attributes_of(marginal.columns))
            by_clique.setdefault(clique, []).append(marginal)
    return by_clique


def _format_share(share: float) -> str:
    """Return a share of the rows in percent; a small share is never 0."""
    return f"{share:.0%}" if share >= 0.01 else "below 1%"


def _list_set_noise(request: Request, stage: Stage) -> list[tuple[Clique, float]]:
    """Return the attributes of every named set and the noise of its counts."""
    named, domain = request.public.measured_sets, request.encoding.domain
    rho = stage.rho * split_sets(request).named_of_measured
    shares = split_by_weight([weight for _, weight in named], rho) if named else []
    sigmas = [compute_sigma(share, request.records, request.pricing) for share in shares]
    return [(domain.ordered(a), sigma) for (a, _), sigma in zip(named, sigmas, strict=True)]
