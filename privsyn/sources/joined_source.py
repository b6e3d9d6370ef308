"""Two private tables, persons and their rows, read as one: each row with its person's columns beside it.

A further table is read with the table above it.  If that table holds rows (visits, with drugs below), one visit
represents each person.  The draw depends on that person's visits alone, so one person is one visit with its drugs, or
none.

The table above is held in memory; rows are streamed.  A person without rows becomes one row without a place in the
order.  Rows that do not fit the other table are left out and counted as repairs (private).  Each such rule looks at the
rows of one person or household alone.  If several rows claim one place, the first in the order of
tasks/panels/row_order.py stays, so the stored order reveals nothing.

A table above without any kept row is refused, since no such rule can repair it; the message holds no value and says
that it is private.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsyn.base.errors import RequestError
from privsyn.data_contracts.columns import CategoricalColumn
from privsyn.data_contracts.linked_tables import name_one_place
from privsyn.data_contracts.promise import Unit
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.tables import choose_batch_rows
from privsyn.sources.private_table import LEFT_OUT, Note, Source, ignore_repairs
from privsyn.tasks.codecs.parsing import to_keys
from privsyn.tasks.panels.choose_rows import RowsOfPersons
from privsyn.tasks.panels.row_order import RowOrder, gather_rows

if TYPE_CHECKING:
    import pandas as pd

    from privsyn.storage.store import Store

NOBODY, NO_KEY, AGAIN = "not in the table above", "null in the table above", "again in the table above"
"""Repairs of a key: rows below whose key is not above; rows above without a key; repeated rows of one key above."""

TWICE, ELSEWHERE = "again in the household", "in another household, too"
"""Repairs of the key of members: repeated rows of a key in one household; rows whose key is also in other households.

The latter stay, since a rule that left one of them out would depend on both households.
"""

SHARED = "of another person, too"
"""Repair of the key of drawn rows: another person's drawn row has the same key, and keeps the rows below."""

PRIVATE = "(PRIVATE: it is about rows; pass it on to nobody); nothing was spent"
"""End of an error message about rows."""


@dataclass(frozen=True, eq=False)
class JoinedSource(Source):
    """Two tables whose structure fits the spec.

    ``above`` and ``below``: the tables, by name; ``key``: the column that names each row's owner; ``row_key``: the key
    of a row below, if it is checked.  ``all_persons``: whether persons without rows are read, too.  ``joined``: further
    table -> its join with the table above it.  ``person``: the column below that names the person beside the drawn
    row's key, if any.  ``order``: chooses one of several rows.
    """

    above: tuple[str, Source]
    below: tuple[str, Source]
    key: str
    row_key: str | None
    all_persons: bool
    joined: Mapping[str, JoinedSource] = field(default_factory=dict)
    person: str | None = None
    order: RowOrder = field(default_factory=RowOrder)
    _checked: list[int] = field(default_factory=list, repr=False)

    @classmethod
    def open(
        cls, data: Mapping[str, Any], spec: ReleaseSpec, open_one: Callable[[Any, ReleaseSpec], Source], order: RowOrder
    ) -> JoinedSource:
        """Check that all tables are readable and have exactly the columns that the spec lists for them.

        ``data``: table name -> its place, or the table in memory; ``open_one``: opens one table; ``order``: chooses one
        of several rows.  Raises RequestError that names the table and the column.
        """
        if set(data) != set(spec.tables):
            names = " and ".join(spec.tables)
            raise RequestError(
                f"is of {', '.join(map(str, data)) or 'no table'}, and the spec's tables are {names}",
                f"Hand over a mapping with a table each for {names}",
                "release.data",
            )
        root, first, *further = spec.table_names
        table_pairs = spec.table_pairs or {first: spec}
        named = {str(table.of) for table in spec.tables.values()}  # tables with rows below, which name their key
        household, opened = spec.unit.household_id is not None, {}
        for name, pair_spec in table_pairs.items():
            _, key = pair_spec.get_parent_table(name)
            for table_name, table in pair_spec.tables.items():
                read_key = table_name == name and (household or table_name in named)
                if table_name not in opened:
                    person = spec.get_parent_table(first)[1] if table_name == name and table.of != root else None
                    row_key = table.key if read_key else None
                    try:
                        place = data[table_name]
                        opened[table_name] = _open(place, table_name, key, pair_spec, open_one, row_key, person)
                    except RequestError as error:
                        at = "" if error.field.endswith("data") else f".{error.field}"
                        raise error.about(f"tables.{table_name}{at}") from None
        whole = cls._join_two(opened, table_pairs[first], order)
        whole = replace(whole, row_key=spec.tables[first].key if household else None)
        further_sources: dict[str, JoinedSource] = {}
        for name in further:
            above, key = spec.get_parent_table(name)
            one = None if above == root else DrawnSource.of(further_sources.get(above, whole), key)
            further_sources[name] = cls._join_two(opened, table_pairs[name], order, one)
        return replace(whole, joined=further_sources)

    @classmethod
    def _join_two(
        cls, opened: Mapping[str, Source], spec: ReleaseSpec, order: RowOrder, parent: Source | None = None
    ) -> JoinedSource:
        """Join the opened tables of a spec of two; ``parent``: rows that replace the upper table."""
        upper, below = spec.table_names
        one, many, key = parent or opened[upper], opened[below], spec.get_parent_table(below)[1]
        person = one.rows.key if isinstance(one, DrawnSource) and one.rows.key in many.columns else None
        columns = (*one.columns, *(c for c in many.columns if c not in (key, person)))
        read = {*spec.measured_columns, key}
        types = {**many.types, **one.types}
        return cls(
            columns,
            tuple(c for c in columns if c in read),
            {c: t for c, t in types.items() if c in read},
            (upper, one),
            (below, many),
            key,
            None,
            spec.unit.identifier is not None,
            person=person,
            order=order,
        )

    @property
    def _tables(self) -> tuple[tuple[str, Source], ...]:
        return (self.above, self.below, *(source.below for source in self.joined.values()))

    @property
    def further_tables(self) -> Mapping[str, Source]:
        """Further table -> its rows, joined with the table above."""
        return self.joined

    def join_every_row(self, name: str) -> JoinedSource:
        """Return a further table joined with every row of the table above, not with one of each person.

        No look of a release counts this join.
        """
        joined = self.joined[name]
        table, above = joined.above
        return replace(joined, above=(table, replace(above, every=True))) if isinstance(above, DrawnSource) else joined

    def count_above(self) -> int:
        """Return the number of rows of the table above."""
        return self._persons[0].num_rows

    @property
    def names(self) -> tuple[str, ...]:
        """The places of all tables."""
        return tuple(name for _, source in self._tables for name in source.names)

    def fingerprints(self, store: Store) -> tuple[str, ...]:
        """Return the fingerprint of all tables, then of each table and its files as tables of their own."""
        by_table = [source.fingerprints(store) for _, source in self._tables]
        names = ("above and below", *(f[0] for f in by_table))
        all_ = store.fingerprint_of_table(f"{name}\0".encode() for name in names)
        return (all_, *(fingerprint for of_table in by_table for fingerprint in of_table))

    def pin(self, place: str | dict[str, str]) -> str | dict[str, str]:
        """Return the place of each table with the version that is read."""
        if isinstance(place, str):
            return place
        return {name: str(source.pin(place[name])) for name, source in self._tables}

    def close(self) -> None:
        """Close what is held open between passes."""
        for _, source in self._tables:
            source.close()

    def check_rows(self) -> int:
        """Read every row once, including further tables, and return the number over all tables; see :class:`Source`."""
        if not self._checked:
            further = sum(joined.check_rows() for joined in self.joined.values())
            own = sum(batch.num_rows for batch in self._join(choose_batch_rows(len(self.read)), ignore_repairs))
            self._checked.append(further + own)
        return self._checked[0]

    def _stream(self, batch_rows: int, note: Note) -> Iterator[pa.RecordBatch]:
        for batch in self._join(batch_rows, note):
            yield batch.select(self.read)

    def _join(self, batch_rows: int, note: Note) -> Iterator[pa.RecordBatch]:
        """Yield each row below with the columns of its row above, then the rows above without rows below."""
        persons, _, left_out = self._persons
        note(self.key, left_out)
        (keys, rows), seen, schema, start = self._keys, np.zeros(persons.num_rows, bool), None, 0
        again, elsewhere = self._members
        note(self.row_key or "", +Counter({TWICE: len(again), ELSEWHERE: elsewhere}))
        for batch in self.below[1]._stream(batch_rows, note):
            first, end = np.searchsorted(again, [start, start + batch.num_rows])
            one_of_each = np.delete(np.arange(batch.num_rows), again[first:end] - start)
            start += batch.num_rows
            batch = batch.take(pa.array(one_of_each)) if end > first else batch
            row_keys = to_keys(batch.column(self.key), pa.string())
            if self.person is not None:
                row_keys = _name_both(to_keys(batch.column(self.person), pa.string()), row_keys)
            positions = keys.find(row_keys)
            note("", +Counter({LEFT_OUT: row_keys.null_count}))
            note(self.key, +Counter({NOBODY: positions.null_count - row_keys.null_count}))
            place = rows.take(positions.drop_null())
            seen[np.asarray(place)] = True
            joined = self._lay_beside(persons.take(place), batch.filter(positions.is_valid()))
            schema = joined.schema
            yield joined
        without = persons.take(pa.array(np.flatnonzero(~seen)))
        if self.all_persons and without.num_rows:
            types = {name: pa.string() if t is None else t for name, t in self.below[1].types.items()}
            types = {name: t for name, t in types.items() if name not in (self.key, self.person)}
            types |= {} if schema is None else {name: schema.field(name).type for name in types}
            nulls = {name: pa.nulls(without.num_rows, t) for name, t in types.items()}
            yield self._lay_beside(without, pa.RecordBatch.from_pydict(nulls))

    def _lay_beside(self, persons: pa.Table, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = {name: persons.column(name).combine_chunks() for name in persons.column_names}
        columns |= {name: rows.column(name) for name in rows.schema.names if name not in (self.key, self.person)}
        arrays = {n: a.combine_chunks() if isinstance(a, pa.ChunkedArray) else a for n, a in columns.items()}
        return pa.RecordBatch.from_pydict(arrays)

    @cached_property
    def _persons(self) -> tuple[pa.Table, pa.Array, Counter[str]]:
        """The kept rows above, in memory, their keys, and the number of rows left out.

        The first row in order of each key is kept.  Drawn rows are all kept, since each belongs to another person.  But
        a key's rows below belong to one person only, and leave with that person.
        """
        name, source = self.above
        if isinstance(source, DrawnSource):
            drawn, keys = source.read_drawn()
            if self.person is not None:
                return drawn, drawn.column(self.key).combine_chunks(), Counter()
            return drawn, keys, +Counter({SHARED: len(keys) - len(keys.unique())})
        batches = list(source.batches())
        keys = [to_keys(batch.column(self.key), pa.string()) for batch in batches]
        if sum(len(part) - part.null_count for part in keys) == 0:
            raise RequestError(f"{name} has no row with a `{self.key}` {PRIVATE}", "Name the whole table", "tables")
        codes = pa.chunked_array(keys).dictionary_encode().combine_chunks()
        hashes = np.concatenate([self.order.hash_rows(batch) for batch in batches])
        known, table = np.flatnonzero(codes.is_valid()), pa.Table.from_batches(batches)
        group = np.asarray(codes.indices.drop_null())
        in_order = self.order.sort((group,), hashes[known], lambda rows: _read_simply(table, known[rows]))
        kept_rows = pa.array(known[np.sort(in_order.find_first(group))])
        table = table.take(kept_rows).combine_chunks()
        again = len(codes) - codes.null_count - len(kept_rows)
        return table, codes.take(kept_rows).dictionary_decode(), +Counter({NO_KEY: codes.null_count, AGAIN: again})

    @cached_property
    def _members(self) -> tuple[NDArray[np.int64], int]:
        """The places of repeated rows below in one household, and the number of rows whose key is also in others.

        Of the rows of one key in one household, the first in order stays.
        """
        if self.row_key is None:
            return np.empty(0, np.int64), 0
        keys: list[list[pa.Array]] = [[pa.array([], pa.string())], [pa.array([], pa.string())]]
        hashes = [np.empty(0, np.uint64)]
        size = choose_batch_rows(len(self.read))
        rows = RowsOfPersons(lambda: self.below[1]._stream(size, ignore_repairs), self.order)
        for batch in rows():
            for parts, name in zip(keys, (self.key, self.row_key), strict=True):
                parts.append(to_keys(batch.column(name), pa.string()))
            hashes.append(self.order.hash_rows(batch))
        coded = [pa.chunked_array(parts).dictionary_encode().combine_chunks().indices for parts in keys]
        place = np.flatnonzero(np.asarray(pc.and_(*(codes.is_valid() for codes in coded))))
        household, member = (np.asarray(codes.fill_null(0)).astype(np.int64)[place] for codes in coded)
        group = household << 32 | member
        in_order = self.order.sort((group,), np.concatenate(hashes)[place], lambda some: rows.read_at(place[some]))
        again = np.ones(len(group), bool)
        again[in_order.find_first(group)] = False
        _, number, households = np.unique(member[~again], return_inverse=True, return_counts=True)
        return place[again], int((households[number] > 1).sum())

    @cached_property
    def _keys(self) -> tuple[_Keys, pa.Array]:
        """The distinct keys, and the row above of each; of drawn rows with one key, the first in order."""
        persons, keys, _ = self._persons
        places = np.arange(len(keys))
        if isinstance(self.above[1], DrawnSource):
            group = np.asarray(keys.dictionary_encode().indices)
            hashes = [np.empty(0, np.uint64), *map(self.order.hash_rows, persons.to_batches())]
            in_order = self.order.sort((group,), np.concatenate(hashes), lambda rows: _read_simply(persons, rows))
            places = np.sort(in_order.find_first(group))
        return _Keys(keys.take(pa.array(places))), pa.array(places)


@dataclass(frozen=True, eq=False)
class DerivedSource(Source):
    """A table made from the rows of another one, at that table's places."""

    rows: Source

    @property
    def names(self) -> tuple[str, ...]:
        """The places of the other table."""
        return self.rows.names

    def fingerprints(self, store: Store) -> tuple[str, ...]:
        """Return the fingerprints of the other table and of its files."""
        return self.rows.fingerprints(store)

    def pin(self, place: str | dict[str, str]) -> str | dict[str, str]:
        """Return the place of the other table with the version that is read."""
        return self.rows.pin(place)

    def close(self) -> None:
        """Close what is held open between passes."""
        self.rows.close()


@dataclass(frozen=True, eq=False)
class PlacedSource(DerivedSource):
    """The rows of a table without an order, each at the same ``place``, a column that is in no table."""

    place: str

    @classmethod
    def of(cls, rows: Source, place: str) -> PlacedSource:
        """Return the rows with the column ``place``."""
        return cls((*rows.columns, place), (*rows.read, place), {**rows.types, place: pa.int64()}, rows, place)

    def check_rows(self) -> int:
        """Read every row once; see :class:`Source`."""
        return self.rows.check_rows()

    def _stream(self, batch_rows: int, note: Note) -> Iterator[pa.RecordBatch]:
        for batch in self.rows._stream(batch_rows, note):
            yield batch.append_column(self.place, pa.array(np.ones(batch.num_rows, np.int64)))


@dataclass(frozen=True, eq=False)
class DrawnSource(DerivedSource):
    """One row of each person in a table of rows, with the person's columns beside it.

    ``rows``: all rows, joined with those above; ``row_key``: the key of a row; ``every``: draw every row of a person.
    """

    rows: JoinedSource
    row_key: str
    every: bool = False

    @classmethod
    def of(cls, rows: JoinedSource, row_key: str) -> DrawnSource:
        """Return the drawn rows among those that have a key."""
        read, types = (*rows.read, row_key), {**rows.types, row_key: None}
        return cls(rows.columns, read, types, replace(rows, all_persons=False), row_key)

    def _stream(self, batch_rows: int, note: Note) -> Iterator[pa.RecordBatch]:
        """Yield the drawn rows: the first in order of each person, by the row's key and all other columns.

        The draw depends on that person's own rows alone.
        """
        place, start = np.sort(self._draw()), 0
        for batch in self.rows._join(batch_rows, note):
            low, high = np.searchsorted(place, [start, start + batch.num_rows])
            yield batch.take(pa.array(place[low:high] - start)).select(self.read)
            start += batch.num_rows

    def read_drawn(self) -> tuple[pa.Table, pa.Array]:
        """Return the drawn rows, and their keys; in the table, the pair of person and key replaces the row key."""
        schema = pa.schema([(name, self.types[name] or pa.string()) for name in self.read])
        table = pa.Table.from_batches(batches) if (batches := list(self.batches())) else schema.empty_table()
        person, key = (to_keys(table[name].combine_chunks(), pa.string()) for name in (self.rows.key, self.row_key))
        place = table.schema.get_field_index(self.row_key)
        return table.combine_chunks().set_column(place, self.row_key, _name_both(person, key)), key

    def _draw(self) -> NDArray[np.int64]:
        persons, keys = [pa.array([], pa.string())], [pa.array([], pa.string())]
        hashes, order = [np.empty(0, np.uint64)], self.rows.order
        rows = RowsOfPersons(lambda: self.rows._join(choose_batch_rows(len(self.rows.read)), ignore_repairs), order)
        for batch in rows():
            persons.append(to_keys(batch.column(self.rows.key), pa.string()))
            keys.append(to_keys(batch.column(self.row_key), pa.string()))
            hashes.append(order.hash_rows(batch))
        known = np.flatnonzero(np.asarray(pa.chunked_array(keys).is_valid()))
        if self.every:
            return known
        person = np.asarray(pa.chunked_array(persons).dictionary_encode().combine_chunks().indices)[known]
        in_order = order.sort((person,), np.concatenate(hashes)[known], lambda some: rows.read_at(known[some]))
        return known[in_order.find_first(person)]


class _Keys:
    """Distinct keys for look-ups by batches of rows; they are hashed once, not for each batch."""

    def __init__(self, keys: pa.Array) -> None:
        self._keys = keys
        self._index = self._hash(keys)

    @staticmethod
    def _hash(texts: pa.Array) -> pd.Index[Any]:
        import pandas as pd  # here: it loads slowly

        from privsyn.tasks.kernels.small_kernels import hash_texts  # here: compiled code loads slowly

        return pd.Index(hash_texts(texts.fill_null("")))  # null hashes as the empty text

    def find(self, texts: pa.Array) -> pa.Array:
        """Return the place of each text among the keys, shape (rows,); null for an unknown text."""
        if not self._index.is_unique:  # a hash collision: in one of 40 million tables of a million keys
            return pc.index_in(texts, value_set=self._keys)
        place = self._index.get_indexer(self._hash(texts))
        positions = pa.array(place, mask=place < 0)
        return pc.if_else(pc.equal(self._keys.take(positions), texts), positions, pa.scalar(None, positions.type))


def _read_simply(table: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    """Return rows of a table in memory, for comparison."""
    return gather_rows(table.take(pa.array(rows)).combine_chunks().to_batches())


def _name_both(person: pa.Array, key: pa.Array) -> pa.Array:
    """Return one text for a person and a key, null if either is; the length makes the text unique for each pair."""
    return pc.binary_join_element_wise(pc.cast(pc.utf8_length(person), pa.string()), person, key, " ")


def _open(
    data: Any,
    name: str,
    key: str,
    spec: ReleaseSpec,
    open_one: Callable[[Any, ReleaseSpec], Source],
    row_key: str | None = None,
    person: str | None = None,
) -> Source:
    """Open the table ``name`` with the spec of its columns.

    ``row_key``: a key of its own to read as well; ``person``: the persons' key, read if the table has it.
    """
    place = name_one_place(name)
    columns = {c: spec.columns[c] for c in spec.tables[name].columns if c in spec.columns and c != place}

    def open_columns(described: Mapping[str, Any]) -> Source:
        rows = open_one(data, alone.with_columns(described))
        return PlacedSource.of(rows, place) if place in spec.columns else rows

    if row_key is not None:
        columns[row_key] = CategoricalColumn(kind="categorical", values=("-",))
    alone = spec.with_columns(columns, Unit(person_id=key, max_records=1))
    alone = alone.model_copy(update={"tables": {}, "order": None})
    if person is not None and person not in columns:
        named = {**columns, person: CategoricalColumn(kind="categorical", values=("-",))}
        with suppress(RequestError):
            return open_columns(named)
    return open_columns(columns)
