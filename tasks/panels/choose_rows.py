"""Choose by public rules, person by person, which rows are kept, and which row and pair represent the person.

A person's rows are sorted by the order column, if the spec names one, and then by their whole content (row_order.py).
At most K are kept, a contiguous run if there is an order, and one of its neighbouring pairs is drawn.  All choices
depend on the person's identifier and own rows alone, not on other persons or the storage order.

So do the figures of a person's kept rows, such as whether a condition ever holds, for private and linked rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.panels import Panel
from privsyn.data_contracts.tables import BATCH_ROWS, build_code_schema
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.codecs.parsing import to_keys
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.kernels.counting import build_code_batch
from privsyn.tasks.kernels.streams import mix_bits
from privsyn.tasks.panels.gaps import open_order
from privsyn.tasks.panels.row_order import RowOrder, SortedRows, Words, gather_rows
from privsyn.tasks.rules.intervals import Interval

RUN_SALT, PAIR_SALT = np.uint64(0x9E6C63D0876A9A47), np.uint64(0xD1342543DE82EF95)
LATER_SALT = np.uint64(0xA24BAED4963EE407)
"""Salts of the random choices."""

Passes = Callable[[], Iterable[pa.RecordBatch]]
"""Starts a fresh pass over the private rows."""

Integers: TypeAlias = NDArray[np.int64]
Codes: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class KeptRuns:
    """The kept rows of some persons, person by person and in order; every array has shape (kept rows,).

    Attributes:
        place: The row's position in the table.
        number: The row's place in the order, in steps.
        rows: How many rows of the person are kept.
        before: How many of the person's kept rows come before this row.
        drawn: Whether the row represents the person.
        pair: Whether the row is the first of the pair (None: the drawn row is).
        later: Whether the row is the drawn household member after the second.
        without: The places of one row for each person who has no row in the order.
    """

    place: NDArray[np.int64]
    number: NDArray[np.int64]
    rows: NDArray[np.int64]
    before: NDArray[np.int64]
    drawn: NDArray[np.bool_]
    pair: NDArray[np.bool_] | None = None
    later: NDArray[np.bool_] | None = None
    without: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def concatenate(cls, groups: Sequence[KeptRuns]) -> KeptRuns:
        """Join several groups of whole persons into one; there is at least one group."""
        parts = {name: [getattr(runs, name) for runs in groups] for name in cls.__dataclass_fields__}
        return cls(**{n: np.concatenate(arrays) for n, arrays in parts.items() if arrays[0] is not None})

    @property
    def first(self) -> NDArray[np.bool_]:
        """Whether the row is its person's first."""
        return self.before == 0

    def narrow(self) -> KeptRuns:
        """Return the same runs with each integer array in the smallest type that holds all its values."""
        names = ("place", "number", "rows", "before", "without")
        return replace(self, **{name: _narrow(getattr(self, name)) for name in names})

    def find_pairs(self) -> NDArray[np.int64]:
        """Return the first kept row of each pair."""
        return np.flatnonzero((self.drawn if self.pair is None else self.pair) & (self.rows > 1))

    def find_later(self) -> NDArray[np.int64]:
        """Return the later member of each household of three or more; empty for persons with rows."""
        none = np.zeros(len(self.rows), bool)
        return np.flatnonzero((none if self.later is None else self.later) & (self.rows > 2))

    def count_members(self, roles: int) -> NDArray[np.int64]:
        """Return how many members of each role each household has, shape (households, roles)."""
        household = np.cumsum(self.first) - 1
        counts = np.bincount(household * roles + self.number, minlength=int(self.first.sum()) * roles)
        return counts.reshape(-1, roles)

    def measure_gaps(self) -> NDArray[np.int64]:
        """Return the steps from each drawn row to the next row, -1 without one, shape (persons,)."""
        drawn = np.flatnonzero(self.drawn)
        after = np.minimum(drawn + 1, len(self.number) - 1)
        return np.where(self.rows[drawn] > 1, self.number[after] - self.number[drawn], -1)


def _narrow(values: NDArray[np.int64]) -> NDArray[Any]:
    """Return the values in the smallest integer type that holds them."""
    low, high = (np.min_scalar_type(int(value)) for value in (values.min(initial=0), values.max(initial=0)))
    return values.astype(np.result_type(low, high))


MOST_ROWS = 1 << 40
"""The most rows of a private table."""


def build_runs_domain(plan: EncodingPlan) -> Domain:
    """Return the domain of stored runs; places are positions among the kept rows."""
    panel, (low, high) = plan.get_order()[0], open_order(plan).bounds
    sizes = {"place": MOST_ROWS, "number": high - low + 1, "rows": panel.most + 1, "before": panel.most}
    return Domain.of({**sizes, "drawn": 2, "pair": 2, "later": 2})


def runs_to_batches(runs: KeptRuns, domain: Domain) -> Iterator[pa.RecordBatch]:
    """Yield kept rows as batches of ``domain`` (contract RUNS)."""
    schema = build_code_schema(domain)
    flags = {"pair": runs.drawn if runs.pair is None else runs.pair, "later": runs.later}
    for start in range(0, len(runs.place), BATCH_ROWS):
        part = slice(start, start + BATCH_ROWS)
        columns = (flags[name] if name in flags else getattr(runs, name) for name in domain.attributes)
        yield build_code_batch(schema, ((np.zeros(len(runs.place), bool) if c is None else c)[part] for c in columns))


def iterate_stored_runs(batches: Iterable[pa.RecordBatch], group_rows: int) -> Iterator[KeptRuns]:
    """Yield stored kept rows in groups of whole persons, of about ``group_rows`` rows."""
    waiting, rows = list[pa.RecordBatch](), 0
    for batch in batches:
        begins = np.flatnonzero(np.asarray(batch.column("before")) == 0)
        if rows + batch.num_rows > group_rows and rows and len(begins):
            yield _read_runs([*waiting, batch.slice(0, begins[0])])
            batch = batch.slice(begins[0])
            waiting, rows = [], 0
        waiting.append(batch)
        rows += batch.num_rows
    if waiting:
        yield _read_runs(waiting)


def _read_runs(batches: Sequence[pa.RecordBatch]) -> KeptRuns:
    columns = {name: np.concatenate([np.asarray(b.column(name)) for b in batches]) for name in batches[0].schema.names}
    place, number, rows, before = (columns[name].astype(np.int64) for name in ("place", "number", "rows", "before"))
    drawn, pair, later = (columns[name].astype(bool) for name in ("drawn", "pair", "later"))
    return KeptRuns(place, number, rows, before, drawn, pair, later)


class RowsOfPersons:
    """Private rows, and the order in which rows of a person are chosen.

    Calling it starts a fresh pass over all rows.
    """

    def __init__(self, batches: Callable[..., Iterable[pa.RecordBatch]], order: RowOrder | None = None) -> None:
        """Take a function that starts a pass; nothing is read yet.

        ``order``: keyed by the private folder; None uses the empty key, for runs that release nothing.
        """
        self._batches, self.order = batches, order or RowOrder()

    @classmethod
    def of(cls, passes: Callable[..., Iterable[pa.RecordBatch]]) -> RowsOfPersons:
        """Return ``passes`` if it has an order already; otherwise give it the order of the empty key."""
        return passes if isinstance(passes, cls) else cls(passes)

    def __call__(self, *repairs: Any) -> Iterable[pa.RecordBatch]:
        """Return the rows of a fresh pass."""
        return self._batches(*repairs)

    def count(self) -> int:
        """Return the number of all rows; takes a pass."""
        return sum(batch.num_rows for batch in self())

    def read_at(self, places: NDArray[np.int64]) -> pa.Table:
        """Return the rows at these ascending places in comparable types; takes a pass."""
        return gather_rows(take_at(self(), places))


def take_at(batches: Iterable[pa.RecordBatch], places: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    """Yield, for each batch, its rows at these ascending places of all rows, possibly none."""
    start = 0
    for batch in batches:
        low, high = np.searchsorted(places, [start, start + batch.num_rows])
        yield batch.take(pa.array(places[low:high] - start))
        start += batch.num_rows


class _Located(NamedTuple):
    """Rows of one group of persons; every array has shape (rows,).

    Attributes:
        place: The row's position in the table.
        person: The person's number, from 0.
        key: The hash of the person's identifier.
        number: The row's place in the order, from 0; -1 without a place, 0 for all rows without an order.
        hashes: The hashes of the row's content.
    """

    place: NDArray[np.int64]
    person: NDArray[np.int64]
    key: NDArray[np.uint64]
    number: NDArray[np.int64]
    hashes: Words

    def select(self, chosen: NDArray[Any]) -> _Located:
        """Return some of the rows; ``chosen``: their positions, or a mask."""
        return _Located(*(values[chosen] for values in self))

    def sort(self, rows: RowsOfPersons) -> SortedRows:
        """Return the rows person by person, in order, with ties sorted by content."""
        read = lambda positions: rows.read_at(self.place[positions])  # noqa: E731
        return rows.order.sort((self.person, self.number), self.hashes, read)


def find_kept_rows(rows: RowsOfPersons, identifier: str, limit: int, group_rows: int) -> NDArray[np.bool_]:
    """Return which rows are kept of persons whose rows have no order, shape (rows,).

    At most ``limit`` rows of each person are kept; rows without an identifier are not.  ``group_rows``: about how many
    rows are held in memory; the result does not depend on it.
    """
    keep = np.zeros(rows.count(), bool)
    groups = -(-len(keep) // group_rows)
    for group in range(groups):
        located = _locate_rows(rows, identifier, None, group, groups)
        keep[located.place[located.sort(rows).find_first(located.person, limit)]] = True
    return keep


def iterate_runs(rows: RowsOfPersons, plan: EncodingPlan, groups: int) -> Iterator[KeptRuns]:
    """Yield the kept rows of every person in ``groups`` groups of persons, holding one group at a time.

    Rows without an identifier or a place in the order are left out.  If persons are a table of their own, persons
    without other rows are listed in ``without``.  Which rows are kept does not depend on the groups.
    """
    panel = plan.get_order()[0]
    for group in range(groups):
        located = _locate_rows(rows, panel.person, plan, group, groups)
        placed = located.number >= 0
        runs = _choose(located.select(placed), rows, panel)
        yield replace(runs, without=_find_persons_without(located, placed, rows)) if panel.above else runs


def _find_persons_without(located: _Located, placed: NDArray[np.bool_], rows: RowsOfPersons) -> NDArray[np.int64]:
    """Return the place of the first row of each person without any ``placed`` row."""
    has_rows = np.zeros(int(located.person.max(initial=-1)) + 1, bool)
    has_rows[located.person[placed]] = True
    lacking = located.select(~placed & ~has_rows[located.person])
    return lacking.place[lacking.sort(rows).find_first(lacking.person)]


def _locate_rows(rows: RowsOfPersons, identifier: str, plan: EncodingPlan | None, group: int, groups: int) -> _Located:
    """Return the rows of one group of persons.

    ``plan``: for ordered rows; rows without a place in the order are included if persons are a table of their own.
    None: no order.
    """
    from privsyn.tasks.kernels.small_kernels import hash_texts  # here: compiled code loads slowly

    order, start = None if plan is None else open_order(plan), 0
    parts: list[tuple[NDArray[Any], ...]] = [_Located(*(np.empty(0, t) for t in (int, int, np.uint64, int, np.uint64)))]
    persons = [pa.array([], pa.string())]
    for batch in rows():
        identifiers = to_keys(batch.column(identifier), pa.string())
        mine, steps = np.asarray(identifiers.is_valid()), np.zeros(batch.num_rows, np.int64)
        if plan is not None and order is not None:
            panel = plan.get_order()[0]
            has_step, numbers = order.locate(batch.column(panel.order))
            steps = np.where(has_step, numbers - order.bounds[0], -1)
            mine = mine & (has_step | panel.above)
        key = hash_texts(identifiers) ^ rows.order.derive_key("person")
        if groups > 1:
            mine = mine & (mix_bits(key) % np.uint64(groups) == group)
        if mine.any():
            group_rows = batch.filter(pa.array(mine))
            persons.append(identifiers.filter(pa.array(mine)))
            place = start + np.flatnonzero(mine)
            parts.append((place, place, key[mine], steps[mine], rows.order.hash_rows(group_rows)))
        start += batch.num_rows
    person = np.asarray(pa.chunked_array(persons).dictionary_encode().combine_chunks().indices).astype(np.int64)
    return _Located(*map(np.concatenate, zip(*parts, strict=True)))._replace(person=person)


def draw_one_row_each(person: NDArray[np.int64], *, household: bool) -> NDArray[np.int64]:
    """Return the place of one row of each person, given rows person by person, by the rule of :func:`iterate_runs`.

    A person's last of several rows is never drawn; a household may draw any member.
    """
    begins = np.flatnonzero(np.diff(person, prepend=-1))
    rows = np.diff(np.append(begins, len(person))) - (not household)
    key = mix_bits(person[begins].astype(np.uint64) ^ (RUN_SALT if household else PAIR_SALT))
    return begins + (key % np.maximum(rows, 1).astype(np.uint64)).astype(np.int64)


def _choose(located: _Located, every_row: RowsOfPersons, panel: Panel) -> KeptRuns:
    """Return the kept rows of these persons; rows at the same place of the order are sorted by content.

    A household keeps its first members in the order of roles, and one member of each role that may occur once.
    """
    order = located.sort(every_row).order
    if panel.once:
        person, number = located.person[order], located.number[order]
        again = (np.diff(person, prepend=-1) == 0) & (np.diff(number, prepend=-1) == 0)
        order = order[~(again & np.isin(number, panel.once))]
    place, person, key, number, _ = located.select(order)
    begins = np.flatnonzero(np.diff(person, prepend=-1))
    person_sizes = np.diff(np.append(begins, len(person)))
    key = key[begins] if len(begins) else np.empty(0, np.uint64)
    kept_sizes = np.minimum(person_sizes, panel.most)
    start = (mix_bits(key ^ RUN_SALT) % (person_sizes - kept_sizes + 1).astype(np.uint64)).astype(np.int64) * (
        not panel.household
    )
    pair = (mix_bits(key ^ PAIR_SALT) % np.maximum(kept_sizes - 1, 1).astype(np.uint64)).astype(np.int64)
    rank = np.arange(len(person)) - np.repeat(begins, person_sizes)
    before = rank - np.repeat(start, person_sizes)
    rows = np.repeat(kept_sizes, person_sizes)
    inside = (before >= 0) & (before < rows)
    in_pair = before == np.repeat(pair, person_sizes)
    if not panel.household:
        return KeptRuns(place[inside], number[inside], rows[inside], before[inside], in_pair[inside])
    chosen_run = (mix_bits(key ^ RUN_SALT) % np.maximum(kept_sizes, 1).astype(np.uint64)).astype(np.int64)
    later = (mix_bits(key ^ LATER_SALT) % np.maximum(kept_sizes - 2, 1).astype(np.uint64)).astype(np.int64) + 2
    drawn, after = (before == np.repeat(which, person_sizes) for which in (chosen_run, later))
    kept_rows = place[inside], number[inside], rows[inside], before[inside]
    return KeptRuns(*kept_rows, drawn[inside], in_pair[inside], after[inside])


def summarize_runs(passes: Passes, plan: EncodingPlan, runs: KeptRuns) -> list[Integers]:
    """Return the code of each summary for every person of ``runs``, -1 for null; reads the rows once."""
    book = plan.summaries[0].book
    behind = book.find_measured_columns([name for codec in plan.summaries for name in codec.node.columns])
    codecs = [c for c in plan.row_plan.codecs if not {*behind}.isdisjoint(c.ranges())]
    order = np.argsort(runs.place, kind="stable")
    parts: dict[str, list[pa.Array]] = {}
    for rows in take_at(passes(), runs.place[order]):
        for codec in codecs:
            for name, values in codec.read({source: rows.column(source) for source in codec.sources}).items():
                parts.setdefault(name, []).append(values)
    back = pa.array(np.argsort(order))
    table = {name: pa.chunked_array(arrays).combine_chunks().take(back) for name, arrays in parts.items()}
    return [codec.compute(codec.book.read_table(table), runs.first) for codec in plan.summaries]


def summarize_linked(
    plan: EncodingPlan, recode: Recode, read: Callable[[str], Interval], first: NDArray[np.bool_]
) -> dict[str, Codes]:
    """Return the coarse codes of each summary for the persons of linked rows.

    ``read``: returns a column's possible values in each row, person by person and in order; ``first``: where a person
    begins.
    """
    codes_by_summary = {}
    for summary in plan.summaries:
        codes = summary.compute(summary.book.resolve(read), first)
        fine = summary.encode({summary.attribute: pa.array(codes, mask=codes < 0)})[0]
        summary_recode = recode[summary.attribute]
        codes_by_summary[summary.attribute] = np.minimum(summary_recode.coarse[fine], summary_recode.size - 1)
    return codes_by_summary


def list_groups(
    plan: EncodingPlan, recode: Recode, coarse: Mapping[str, Codes], figures: Mapping[str, Codes]
) -> list[tuple[Codes, Codes]]:
    """Return the groups of persons that questions use: by the linked rows, and by the records.

    ``coarse``: codes of records; ``figures``: summary -> codes from the linked rows.
    """
    groups = []
    for attributes in plan.person_groups:
        shape = [recode[a].size for a in attributes]
        by_rows, wanted = (
            [np.minimum(codes_by_attribute.get(a, coarse[a]), recode[a].size - 1) for a in attributes]
            for codes_by_attribute in (figures, coarse)
        )
        groups.append((np.ravel_multi_index(by_rows, shape), np.ravel_multi_index(wanted, shape)))
    return groups
