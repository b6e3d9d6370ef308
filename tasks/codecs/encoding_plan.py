"""The encoding plan: every codec of a release, in attribute order, made from the spec."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsyn.data_contracts.columns import (
    BooleanColumn,
    CategoricalColumn,
    DateColumn,
    DatetimeColumn,
    IntegerColumn,
    NumberColumn,
    TimeColumn,
)
from privsyn.data_contracts.columns.ordered_columns import RESOLUTION_SECONDS, ROUND_NUMBERS
from privsyn.data_contracts.columns.shared_fields import find_next_value
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.focus import NamedMarginal, parse_conditions
from privsyn.data_contracts.panels import MOST_PERSONS, Panel
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.rules import OneOf, infer_type
from privsyn.data_contracts.spec_checks import get_step
from privsyn.data_contracts.tables import ValueRange
from privsyn.tasks.codecs.categories import BooleanCodec, CategoricalCodec, LevelCodec, OneHotCodec, add_level_codecs
from privsyn.tasks.codecs.cells import REALS_FROM, AttributeBins, Binning, CutCell, Level, list_rungs
from privsyn.tasks.codecs.codec import Codec, Codes, UnreleasedCodec
from privsyn.tasks.codecs.dates_and_times import (
    CalendarColumnCodec,
    CalendarPart,
    DateCodec,
    DatetimeCodec,
    TimeCodec,
    list_parts,
    name_calendar_attribute,
)
from privsyn.tasks.codecs.derived import DifferenceCodec, count_rounded, split_by_computed
from privsyn.tasks.codecs.numbers import FrequentValues, IntegerCodec, NumberCodec, SteppedCodec
from privsyn.tasks.codecs.ordered import CellOptions, OrderedCodec
from privsyn.tasks.codecs.person_figures import (
    CompositionCodec,
    PersonFigureCodec,
    SummaryCodec,
    build_person_figures,
    get_unit,
)
from privsyn.tasks.rules.compiled_rules import CompiledRules, list_thresholds

FEW_VALUES = 128
"""The most values of a column whose cells no first look chooses: equal cells then hold at most two values each."""

FIGURES = (PersonFigureCodec, CompositionCodec)
"""The codecs of figures of persons and households."""


@dataclass(frozen=True)
class EncodingPlan:
    """All codecs of a release, in attribute order.

    ``computed``: codecs of columns that rules compute, which are no attributes.  ``together``: groups of attributes
    whose values lie at the same place in their codes.  ``unmeasured``: columns drawn without looking at the private
    table, which are no attributes either.  ``panel``: public facts about the linked rows of one person; ``order``: the
    codec of the column that orders them; ``order_unit``: its smallest step in the codec's numbers.  ``person_groups``:
    the attributes by which questions count persons.  ``uncut``: the plan before cells were cut, whose codes choose a
    person's rows; None means this plan.
    """

    codecs: tuple[Codec, ...]
    computed: tuple[Codec, ...] = ()
    rules: CompiledRules | None = None
    together: tuple[tuple[str, ...], ...] = ()
    unmeasured: tuple[UnmeasuredColumn, ...] = ()
    panel: Panel | None = None
    order: Codec | None = None
    order_unit: int = 1
    person_groups: tuple[tuple[str, ...], ...] = ()
    uncut: EncodingPlan | None = None

    @property
    def row_plan(self) -> EncodingPlan:
        """The codecs of the table's columns, without person figures."""
        codecs = tuple(c for c in self.codecs if not isinstance(c, FIGURES))
        return replace(self, codecs=codecs, panel=None, uncut=self.uncut and self.uncut.row_plan)

    @property
    def following(self) -> tuple[str, ...]:
        """The attributes whose code in a person's next row is measured; their columns are not carried.

        Attributes counted alone, such as a weekday, are drawn for every row separately (:attr:`drawn_by_row`).
        """
        carried_by_none = (c for c in self._changing if not isinstance(c, LevelCodec) and c.chances is None)
        return tuple(c.attribute for c in carried_by_none)

    @property
    def constant(self) -> tuple[str, ...]:
        """The attributes of columns that are constant within a person."""
        return () if self.panel is None else self.list_attributes_within(self.panel.constant)

    def list_attributes_within(self, columns: Collection[str]) -> tuple[str, ...]:
        """Return the attributes that depend on these released columns alone."""
        names = frozenset(columns)
        return tuple(c.attribute for c in self.row_plan.codecs if names.issuperset(c.sources))

    @property
    def drawn_by_row(self) -> tuple[str, ...]:
        """The attributes counted alone, with shares by chance, of columns that change between rows."""
        return tuple(c.attribute for c in self._changing if c.chances is not None)

    @property
    def _changing(self) -> tuple[Codec, ...]:
        carried = frozenset() if self.panel is None else self.panel.carried
        return tuple(c for c in self.row_plan.codecs if carried.isdisjoint(c.sources))

    @property
    def vocabulary(self) -> Mapping[str, int]:
        """A number for every text that rules and summaries compare; empty without rules or summaries."""
        books = [self.rules, *(codec.book for codec in self.summaries)]
        return next((book.vocabulary for book in books if book is not None), {})

    @property
    def summaries(self) -> tuple[SummaryCodec, ...]:
        """The codecs of summaries of a person's rows."""
        return tuple(c for c in self.codecs if isinstance(c, SummaryCodec))

    def get_order(self) -> tuple[Panel, Codec]:
        """Return the panel and the codec of its order.  Raises ValueError for a plan that links no rows."""
        if self.panel is None or self.order is None:
            raise ValueError("the plan links no rows")
        return self.panel, self.order

    def get_compositions(self) -> CompositionCodec:
        """Return the codec of household compositions.  Raises LookupError if the plan has none."""
        for codec in self.codecs:
            if isinstance(codec, CompositionCodec):
                return codec
        raise LookupError("the plan has no households")

    def get_codec(self, attribute: str) -> Codec:
        """Return the codec of an attribute.  Raises LookupError if there is none."""
        for codec in self.codecs:
            if codec.attribute == attribute:
                return codec
        raise LookupError(f"there is no attribute {attribute!r}")

    @property
    def wide(self) -> dict[str, tuple[tuple[int, int], ...]]:
        """Attribute -> its wide bins (:class:`Cells`), if it has any."""
        ordered = [codec for codec in self.codecs if isinstance(codec, OrderedCodec)]
        return {codec.attribute: codec.cells.wide for codec in ordered if codec.cells.wide}

    @property
    def differences(self) -> tuple[DifferenceCodec, ...]:
        """The codecs of the differences of columns that the spec compares."""
        return tuple(c for c in self.codecs if isinstance(c, DifferenceCodec))

    def describe_codes(self) -> dict[str, Any]:
        """Return the public facts about the codes: their number, single-value codes, chances, bins of values and rungs.

        JSON-ready, for cache keys.
        """
        binning, ordered = self.binning, [c for c in self.codecs if isinstance(c, OrderedCodec)]
        return {
            "sizes": self.domain.sizes,
            "points": {a: bins.points.cell.tolist() for a, bins in binning.items() if bins.points is not None},
            "chances": {a: bins.chances.tolist() for a, bins in binning.items() if bins.chances is not None},
            "bins of values": [codec.attribute for codec in ordered if codec.has_value_bins],
            "rungs": [codec.attribute for codec in self.on_ladder],
        }

    @cached_property
    def on_ladder(self) -> tuple[OrderedCodec, ...]:
        """The codecs of columns whose cells are chosen after a first look."""
        return tuple(c for c in self.codecs if isinstance(c, OrderedCodec) and c.on_ladder)

    @cached_property
    def wide_celled(self) -> tuple[SteppedCodec[Any], ...]:
        """The codecs of numbers with open bins and some cells of several values, which a look may count singly.

        Linked rows have none; columns whose values lie at one place are left out.
        """
        together = {a for group in self.together for a in group}
        numbers = (c for c in self.codecs if isinstance(c, SteppedCodec) and c.attribute not in together)
        return tuple(c for c in numbers if self.panel is None and c.widths is not None and any(c.cell_values))

    def only(self, attributes: Collection[str]) -> EncodingPlan:
        """Return a plan with the codecs of some attributes alone."""
        return EncodingPlan(tuple(c for c in self.codecs if c.attribute in attributes))

    @property
    def interval_bins(self) -> dict[str, NDArray[np.int32]]:
        """Attribute in ``together`` -> the public bin of every fine code but null, -1 for an exact value."""
        grouped = {a for group in self.together for a in group}
        ordered = [c for c in self.codecs if isinstance(c, OrderedCodec) and c.attribute in grouped]
        exact = {c.attribute: np.array([cell.exact for cell in c.cells.fine]) for c in ordered}
        return {c.attribute: np.where(exact[c.attribute], -1, c.cells.bin_of).astype(np.int32) for c in ordered}

    @cached_property
    def domain(self) -> Domain:
        """The fine domain."""
        return Domain(tuple(c.attribute for c in self.codecs), tuple(c.size for c in self.codecs))

    @property
    def groups(self) -> dict[str, NDArray[np.int32]]:
        """Fine code -> public bin, by attribute."""
        return {c.attribute: c.groups for c in self.codecs}

    @cached_property
    def binning(self) -> Binning:
        """The public facts about every attribute's fine codes, in attribute order."""
        levels: dict[str, tuple[Level, ...]] = {}
        for c in self.codecs:
            if isinstance(c, LevelCodec):
                levels[c.column] = (*levels.get(c.column, ()), Level(c.attribute, c.of))
        return {
            c.attribute: AttributeBins(
                groups=c.groups,
                in_order=c.in_order,
                is_open=c.widths is not None,
                widths=c.widths,
                added=c.added,
                levels=levels.get(c.attribute, ()),
                points=c.points,
                chances=c.chances,
                doubtful=None
                if c.doubtful is None
                else np.append(c.doubtful, np.zeros(c.size - len(c.doubtful), bool)),
            )
            for c in self.codecs
        }

    def attributes_of(self, columns: Collection[str]) -> tuple[str, ...]:
        """Return the attributes that hold these released columns, without attributes derived from them."""
        columns_only = (c for c in self.codecs if not isinstance(c, UnreleasedCodec))
        return tuple(c.attribute for c in columns_only if not set(columns).isdisjoint(c.sources))

    def labels(self) -> dict[str, list[str]]:
        """Return a readable label for every fine code, by attribute."""
        return {c.attribute: c.labels() for c in self.codecs}

    def ranges(self) -> dict[str, ValueRange]:
        """Return the public domain of every released column."""
        ranges: dict[str, ValueRange] = {}
        for codec in (*self.codecs, *self.computed):
            ranges.update(codec.ranges())
        for drawn in self.unmeasured:
            ranges.update(drawn.ranges())
        return ranges

    def list_table_ranges(self, column_order: Sequence[str]) -> dict[str, ValueRange]:
        """Return the public domains of the synthetic table's columns; linked rows start with the identifier."""
        ranges = self.ranges()
        table_ranges = {name: ranges[name] for name in column_order}
        if self.panel is None:
            return table_ranges
        return {self.panel.person: ValueRange(pa.int64(), False, 1, MOST_PERSONS), **table_ranges}

    def with_slopes(self, slopes: Mapping[str, NDArray[np.float64]]) -> EncodingPlan:
        """Return the plan with these slopes in the cells of numeric columns (tasks/estimation/smooth_counts.py)."""
        codecs = [c.with_slopes(slopes[c.attribute]) if c.attribute in slopes else c for c in self.codecs]
        return replace(self, codecs=tuple(codecs))

    def with_frequent(self, frequent: Mapping[str, FrequentValues]) -> EncodingPlan:
        """Return the plan with these frequent values in the cells of numbers (tasks/estimation/frequent_values.py)."""
        codecs = [
            c.with_frequent(frequent[c.attribute]) if isinstance(c, SteppedCodec) and c.attribute in frequent else c
            for c in self.codecs
        ]
        return replace(self, codecs=tuple(codecs))

    def decode(
        self,
        codes: Mapping[str, Codes],
        rng: np.random.Generator,
        places: Mapping[str, NDArray[np.float64]] | None = None,
        rounded: Collection[str] = (),
    ) -> dict[str, pa.Array]:
        """Return the released columns, including computed ones, from fine codes of every attribute, shape (rows,).

        places: attribute -> place of each row's value in its fine code, in [0, 1); other values are drawn.  rounded:
        the attributes in ``places`` whose values are rounded by their helpers; the others are not rounded.
        """
        columns: dict[str, pa.Array] = {}
        for codec in self.codecs:
            own_codes, helpers = codes[codec.attribute], {name: codes[name] for name in codec.helpers}
            if places and codec.attribute in places and codec.attribute in rounded:
                columns.update(codec.decode_rounded_at(own_codes, places[codec.attribute], rng, helpers))
            elif places and codec.attribute in places:
                columns.update(codec.decode_at(own_codes, places[codec.attribute]))
            else:
                columns.update(codec.decode(own_codes, rng, **({"helpers": helpers} if helpers else {})))
        columns |= self.compute_columns(columns)
        for drawn in self.unmeasured:
            columns[drawn.column] = drawn.draw(len(next(iter(codes.values()))), rng)
        return columns

    def compute_columns(self, columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """Return the columns that rules compute from ``columns``."""
        if self.rules is None or not self.computed:
            return {}
        return self.rules.compute_columns(columns, {name: r.type for name, r in self.ranges().items()})


class ColumnCodecs:
    """The rules of a spec and the codecs of its columns; each codec is made when first requested.

    ``two_celled``: columns with the cells of releases made before wide bins had more.  ``cuts``: the cells of ladder
    columns, as a first look made them.  Cells that the spec takes from an earlier release need no look.
    """

    def __init__(self, spec: ReleaseSpec, two_celled: Collection[str] = (), cuts: Collection[CutCell] = ()) -> None:
        self.spec = spec
        self.rules = CompiledRules.compile(spec) if spec.rules else None
        self._two_celled = frozenset(two_celled)
        self.uncut = ColumnCodecs(spec, two_celled) if cuts else None
        self._cuts: dict[str, list[CutCell]] = {}
        for cut in cuts:
            self._cuts.setdefault(cut.attribute, []).append(cut)
        self._thresholds = [list_asked_thresholds(spec), *([self.rules.thresholds] if self.rules else [])]
        self._made: dict[str, list[Codec]] = {}

    def of(self, name: str) -> list[Codec]:
        """Return the codecs of a column: its own codec and the codecs of its derived attributes."""
        if name not in self._made:
            every = {edge for by_column in self._thresholds for edge in by_column.get(name, ())}
            thresholds, earlier = _drop_repeated(every, self.spec.columns[name]), _list_earlier_cells(self.spec, name)
            cuts = self._cuts.get(name, earlier)
            self._made[name] = codecs = _build_codecs(name, self.spec, thresholds, self._two_celled, cuts)
            if earlier and isinstance(codecs[0], OrderedCodec):
                codecs[0].on_ladder = False
        return self._made[name]


def plan(
    spec: ReleaseSpec, order: Sequence[str] = (), two_celled: Collection[str] = (), cuts: Collection[CutCell] = ()
) -> EncodingPlan:
    """Return :func:`arrange_codecs` for the codecs of ``spec``; see :class:`ColumnCodecs`."""
    return arrange_codecs(ColumnCodecs(spec, two_celled, cuts), order)


def arrange_codecs(column_codecs: ColumnCodecs, order: Sequence[str] = ()) -> EncodingPlan:
    """Return the codecs of a release's attributes, in ``order`` of the released columns (the spec's if empty).

    Computed and unmeasured columns have no attribute; unmeasured columns are drawn when rows are decoded.  The columns
    of one ``one_of`` share one attribute, in the place of the first.  A column with heaps has a second attribute for
    them, and a column with levels one more per level.  A source of a computed column may have codes split by the
    computed column's bins (:mod:`privsyn.tasks.codecs.derived`).
    """
    spec, rules = column_codecs.spec, column_codecs.rules
    columns = spec.released_columns
    names = tuple(name for name in order or columns if columns[name].measured)
    groups = {name: rule for rule in spec.rules if isinstance(rule, OneOf) for name in rule.one_of}
    computed = set() if rules is None else set(rules.order)
    codecs: dict[str, Codec] = {}
    for name in names:
        if name in groups:
            dummies = [column_codecs.of(n)[0] for n in groups[name].one_of]
            codec: Codec = OneHotCodec(dummies, groups[name].or_none)
            codecs.setdefault(codec.attribute, codec)
        elif name not in computed:
            codecs |= {codec.attribute: codec for codec in column_codecs.of(name)}
    follow = tuple(column_codecs.of(n)[0] for n in names if n in computed)
    if rules is not None:
        if spec.panel is None:  # a split code depends on the row's other values, not the row before
            codecs = split_by_computed(codecs, follow, rules)
        codecs = add_level_codecs(codecs, columns, follow, rules)
    for pair in spec.compare:
        first, second = (column_codecs.of(name)[0] for name in pair)
        assert isinstance(first, OrderedCodec) and isinstance(second, OrderedCodec)  # noqa: S101 - checked by the spec
        difference = DifferenceCodec(first, second, get_step(columns[pair[0]]))
        codecs[difference.attribute] = difference
    others = [name for name in order or columns if not columns[name].measured]
    drawn = tuple(UnmeasuredColumn(column_codecs.of(name)[0], columns[name]) for name in others)
    panel, uncut = spec.panel, None if column_codecs.uncut is None else arrange_codecs(column_codecs.uncut, order)
    if panel is None:
        return EncodingPlan(tuple(codecs.values()), follow, rules, spec.together, drawn, uncut=uncut)
    in_order = column_codecs.of(panel.order)[0]
    summaries = _build_summaries(spec, rules)
    if panel.household:
        members = CompositionCodec(panel, in_order)
        linked = EncodingPlan((*codecs.values(), members, *summaries), follow, rules, (), drawn, panel, in_order)
    else:
        assert isinstance(in_order, OrderedCodec)  # noqa: S101 - the spec has checked its kind
        figures, unit = build_person_figures(panel, columns[panel.order]), get_unit(columns[panel.order])
        every = (*codecs.values(), *figures, *summaries)
        linked = EncodingPlan(every, follow, rules, (), drawn, panel, in_order, unit)
    person_sets = [marginal.columns for marginal in spec.measured_sets if marginal.summary is not None]
    return replace(linked, person_groups=tuple(dict.fromkeys(map(linked.attributes_of, person_sets))), uncut=uncut)


def _build_summaries(spec: ReleaseSpec, rules: CompiledRules | None) -> tuple[SummaryCodec, ...]:
    """Return the codecs of the person summaries that questions measure."""
    if not spec.summaries:
        return ()
    book = CompiledRules.compile(spec) if rules is None else rules
    types = {name: infer_type(column) for name, column in spec.released_columns.items()}
    return tuple(SummaryCodec(measured, measured.about.read(types), book) for measured in spec.summaries)


def plan_every_column(
    spec: ReleaseSpec, order: Sequence[str] = (), two_celled: Collection[str] = (), cuts: Collection[CutCell] = ()
) -> EncodingPlan:
    """Return the codecs of every measured column, with computed and one-hot columns as ordinary ones, for evaluation.

    ``two_celled`` and ``cuts``: as in :func:`plan`.
    """
    column_codecs, columns = ColumnCodecs(spec, two_celled, cuts), spec.released_columns
    names = [name for name in order or columns if columns[name].measured]
    return EncodingPlan(tuple(codec for name in names for codec in column_codecs.of(name)), (), column_codecs.rules)


def find_two_celled_columns(plan: EncodingPlan, sizes: Mapping[str, int]) -> frozenset[str]:
    """Return the columns whose ``sizes`` in a release show that it was made before wide bins had more cells."""
    return frozenset(a for a in plan.wide if a in sizes and sizes[a] != plan.domain.size(a))


def list_asked_thresholds(
    spec: ReleaseSpec, some: Sequence[NamedMarginal] | None = None
) -> dict[str, tuple[float, ...]]:
    """Return ordered column -> the bin edges at which conditions of the spec's measured questions change.

    ``some``: use these row questions only.
    """
    columns, questions = spec.released_columns, spec.measured_sets if some is None else some
    conditions = [node for marginal in questions for node in parse_conditions(marginal, columns)]
    if spec.summaries and some is None:
        types = {name: infer_type(column) for name, column in columns.items()}
        conditions += [measured.about.read(types) for measured in spec.summaries]
    return list_thresholds(conditions, columns, after_reals=True)


def _build_codecs(
    name: str, spec: ReleaseSpec, thresholds: Sequence[float], two_celled: Collection[str], cuts: Sequence[CutCell]
) -> list[Codec]:
    """Return the codecs of a column and its derived attributes."""
    column = spec.columns[name]
    rungs = _choose_rungs(column, spec, name)
    if rungs and isinstance(column, NumberColumn) and column.step is None and column.decimals is not None:
        stepped = column.model_copy(update={"step": 10.0**-column.decimals})
        grid = stepped.grid()
        if grid is not None and all(grid.below(np.array([t]))[0] == t for t in thresholds):
            column, rungs = stepped, _choose_rungs(stepped, spec, name)
        else:  # thresholds within a step need the stored values
            rungs = ()
    if len(cuts) == 1 or not rungs:  # the first look kept the column's own cells
        rungs, cuts = (), ()
    options: CellOptions = {"two_celled": name in two_celled, "cuts": cuts, "rungs": rungs}
    match column:
        case IntegerColumn():
            options["points"], rounded = _choose_cells(column, spec)
            return _with_heaps(IntegerCodec(name, column, thresholds, rounded=rounded, **options), column, rounded)
        case NumberColumn():
            points, rounded = _choose_cells(column, spec)
            edges = () if rungs else _choose_edges(column, spec, name)
            points = tuple(p for p in points if not edges or p == edges[-1])  # other values have a bin already
            options |= {"points": points, "edges": edges}
            return _with_heaps(NumberCodec(name, column, thresholds, rounded=rounded, **options), column, rounded)
        case DatetimeColumn():
            return _with_calendar(DatetimeCodec(name, column, thresholds, **options), column, spec)
        case DateColumn():
            return _with_calendar(DateCodec(name, column, thresholds, **options), column, spec)
        case TimeColumn():
            return _with_calendar(TimeCodec(name, column, thresholds, **options), column, spec)
        case BooleanColumn():
            return [BooleanCodec(name, column)]
        case CategoricalColumn():
            return [CategoricalCodec(name, column)]
    raise TypeError(f"{name!r} is not a released column")


def _list_earlier_cells(spec: ReleaseSpec, name: str) -> list[CutCell]:
    """Return the column's cells that the spec takes from an earlier release."""
    if spec.cells is None or name not in spec.cells.columns:
        return []
    cells = spec.cells.columns[name]
    return [CutCell(name, low, number in cells.doubtful) for number, low in enumerate(cells.low)]


def _choose_rungs(column: Any, spec: ReleaseSpec, name: str) -> tuple[float, ...]:
    """Return the edges of a first look's cells; empty for a column with given bins, few values, or shared cells."""
    if not spec.has_ladder or not isinstance(column, IntegerColumn | NumberColumn | DateColumn | DatetimeColumn):
        return ()
    tied = {member for group in (*spec.together, *spec.compare) for member in group}
    if not column.leaves_bins_open or not column.measured or name in tied:
        return ()
    edges = column.edge_values()
    if isinstance(column, DateColumn | DatetimeColumn):
        unit = 1.0
        if isinstance(column, DatetimeColumn):
            unit = 86_400.0 if column.type == "date" else float(RESOLUTION_SECONDS[column.resolution])
        return list_rungs(edges, unit, edges[-1]) if edges[-1] - edges[0] > FEW_VALUES * unit else ()
    grid, decimals = column.grid(), getattr(column, "decimals", None)
    if grid is None and decimals is None:
        return list_rungs(edges, REALS_FROM * max(abs(edges[0]), abs(edges[-1])), 0.0)
    unit = 10.0**-decimals if grid is None and decimals is not None else float(grid.step if grid else 1)
    if edges[-1] - edges[0] <= FEW_VALUES * unit or max(map(abs, edges)) > unit * 2.0**52:
        return ()
    return list_rungs(edges, unit, 0.0)


def _drop_repeated(edges: Collection[float], column: Any) -> list[float]:
    """Return the edges, ascending, without duplicates that no released value lies between.

    With one decimal, ``x <= 0.6`` ends at 0.7 for a rule and right after 0.6 for a question.  The latter serves the
    rule as well, because no value lies between.
    """
    if not isinstance(column, NumberColumn) or column.decimals is None or column.step is not None:
        return sorted(edges)
    before = {edge: round(edge - 10.0**-column.decimals, column.decimals) for edge in edges}
    return sorted(edge for edge in edges if find_next_value(before[edge], None) not in edges)


def _choose_cells(
    column: IntegerColumn | NumberColumn, spec: ReleaseSpec
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return values with a single cell, and numbers that people may round to; both empty if bins are given."""
    compression, is_open = spec.mechanism.compression, column.leaves_bins_open
    points = column.point_values() if compression.single_values and is_open else ()
    return points, column.round_numbers() if compression.round_numbers and is_open else ()


def _choose_edges(column: NumberColumn, spec: ReleaseSpec, name: str) -> tuple[float, ...]:
    """Return edges at a column's few possible values; empty if bins are given or shared."""
    together = {member for group in spec.together for member in group}
    is_open = spec.mechanism.compression.single_values and column.leaves_bins_open
    return column.list_value_edges() if is_open and name not in together else ()


def _with_heaps(codec: OrderedCodec, column: IntegerColumn | NumberColumn, rounded: Sequence[float]) -> list[Codec]:
    """Return the codec, followed by a codec of its heaps if it has any."""
    if column.heaps:
        return [codec, count_rounded(codec, column.heap_values())]
    step = rounded[0] / ROUND_NUMBERS[0] if rounded else None
    return [codec, count_rounded(codec, rounded, step)] if rounded else [codec]


def _with_calendar(
    codec: CalendarColumnCodec, column: DateColumn | DatetimeColumn | TimeColumn, spec: ReleaseSpec
) -> list[Codec]:
    """Return the codec and, if the spec counts the calendar and gives no bins, the codecs of its calendar parts."""
    together = {name for group in spec.together for name in group}
    counted = spec.mechanism.compression.calendar and column.leaves_bins_open
    if not counted or codec.attribute in together | {spec.order}:
        return [codec]
    parts = [CalendarPart.MINUTE] if isinstance(codec, TimeCodec) else list_parts(codec.smallest)
    free = [part for part in parts if name_calendar_attribute(codec.attribute, part) not in spec.columns]
    return [codec, *codec.count_calendar(free)]


class UnmeasuredColumn:
    """A released column drawn from its spec alone, without codes or attribute.

    Listed values are equally likely; numbers, days and times are drawn uniformly from the whole public range, whatever
    the bins.  Null, if allowed, is as likely as one listed value or one bin.
    """

    def __init__(self, codec: Codec, column: Any) -> None:
        self.column, self._codec = codec.attribute, codec
        self._nullable = bool(column.nullable)
        listed = isinstance(column, CategoricalColumn)
        self._values = len(column.values) if listed else None
        bins = int(codec.groups.max()) + 1 - int(self._nullable)
        self._choices = self._values or bins

    def draw(self, rows: int, rng: np.random.Generator) -> pa.Array:
        """Return one value per row, in the released type."""
        chosen = rng.integers(self._choices + int(self._nullable), size=rows)
        null = chosen == self._choices
        if not isinstance(self._codec, OrderedCodec):
            codes = np.where(null, self._codec.size - 1, chosen)
            return self._codec.decode(codes, rng)[self.column]
        values = self._codec.draw_anywhere(rows, rng)
        return pc.if_else(pa.array(null), pa.scalar(None, values.type), values) if self._nullable else values

    def ranges(self) -> dict[str, ValueRange]:
        """Return the ranges of drawn values, without ``other`` or null if only unlisted values become it."""
        domain = self._codec.ranges()[self.column]
        values = None if domain.values is None or self._values is None else domain.values.slice(0, self._values)
        return {self.column: replace(domain, nullable=self._nullable, values=values)}
