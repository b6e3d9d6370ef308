"""The tables that the referee holds a release against: bases with ties, and what is made of them.

Rows of one person mostly agree in every coarse code and differ inside cells, for only then does it show in a look which
of them were chosen.  Some are equal in all columns.  Keys are there twice, and rows whose key nobody has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from audit.referee import Other, Relation

Tables = dict[str, pa.Table]
"""Tables by name; one table has the empty name."""

BATCH_ROWS = 40
"""Rows that a pass over some tables yields at once, so that a person's rows come in several batches."""

NEW = "new"
"""The identifier of a person who is added."""

ROLES = ["head", "partner", "child"]

_HEAVY, _LOW, _HIGH, _WIDE = 100, 53, 123, 9_999
"""Of a wide column of whole numbers: a value that many rows have, where most rows lie, and the largest value."""


@dataclass(frozen=True)
class Structure:
    """Whose the rows are.

    ``unit``: the column that identifies a person or household; empty: nothing does, and ``records`` rows are one
    person's at most.  ``above``: table without that column -> the table above it and the column that names its row.
    ``top``: the table with one row for each unit, if there is one; ``keys``: the columns that rows below name.
    ``enforced``: whether the release knows the units, and keeps a number of rows of each.
    """

    unit: str = ""
    records: int = 1
    above: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    top: str = ""
    keys: tuple[str, ...] = ()
    enforced: bool = True

    def list_units(self, tables: Tables) -> list[str]:
        """Return all identifiers, sorted."""
        columns = [table[self.unit] for table in tables.values() if self.unit in table.column_names]
        return sorted({unit for column in columns for unit in column.to_pylist() if unit is not None})

    def take_rows(self, tables: Tables, units: Sequence[str], *, of_others: bool = False) -> Tables:
        """Return the rows of some units in all tables, or those of all others."""
        taken, own = {}, {}
        for name, table in tables.items():
            if self.unit in table.column_names and name not in self.above:
                own[name] = pc.is_in(table[self.unit], value_set=pa.array(units, pa.string()))
        for name, (above, key) in self.above.items():
            keys = tables[above].filter(own[above])[key]
            own[name] = pc.is_in(tables[name][key], value_set=keys.combine_chunks(), skip_nulls=True)
        for name, table in tables.items():
            mask = own[name].fill_null(False)
            taken[name] = table.filter(pc.invert(mask) if of_others else mask)
        return taken

    def rename_unit(self, rows: Tables, unit: str) -> Tables:
        """Return rows as those of one unit, with keys of their own where others lie below them."""
        renamed = dict(rows)
        for name, table in rows.items():
            for column in table.column_names:
                if column == self.unit:
                    table = _set_column(table, column, pa.array([unit] * table.num_rows, pa.string()))
                elif column in self.keys:
                    own = pc.binary_join_element_wise(pa.scalar(unit), table[column].combine_chunks(), "-")
                    table = _set_column(table, column, own)
            renamed[name] = table.slice(0, 1) if name == self.top else table
        return renamed


def _set_column(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)


# orders


def list_orders(tables: Tables, rng: np.random.Generator, shuffles: int) -> Iterator[tuple[str, Tables]]:
    """Yield the same rows reversed, shuffled, and sorted by each column, with the order's name."""
    yield "reversed", {name: _take(t, np.arange(t.num_rows)[::-1]) for name, t in tables.items()}
    for number in range(shuffles):
        yield f"shuffled {number + 1}", shuffle(tables, rng)
    for column in dict.fromkeys(column for table in tables.values() for column in table.column_names):
        sorted_tables = {n: t.sort_by(column) if column in t.column_names else t for n, t in tables.items()}
        yield f"sorted by {column}", sorted_tables


def shuffle(tables: Tables, rng: np.random.Generator) -> Tables:
    """Return the rows in a random order."""
    return {name: _take(table, rng.permutation(table.num_rows)) for name, table in tables.items()}


def _take(table: pa.Table, places: Any) -> pa.Table:
    return table.take(pa.array(np.ascontiguousarray(places)))


# neighbours


def list_neighbours(
    tables: Tables, structure: Structure, rng: np.random.Generator, times: int
) -> Iterator[tuple[str, Tables]]:
    """Yield tables with one person more or fewer, with all rows: at the beginning, in the middle and at the end."""
    if not structure.unit:
        yield from _list_neighbours_of_records(tables, structure.records, rng, times)
        return
    units = structure.list_units(tables)
    left = [*_list_without_rows(tables, structure), units[0], units[-1], *rng.permutation(units).tolist()]
    for unit in list(dict.fromkeys(left))[: times and times + len(tables) - 1]:
        yield f"without {unit}", structure.take_rows(tables, [unit], of_others=True)
    for number in range(times):
        like = rng.choice(units, 1 + number % 3, replace=False).tolist()
        rows = structure.rename_unit(structure.take_rows(tables, like), NEW)
        if number % 3 == 0:  # rows of one kind, which all may fall into one cell
            rows = {name: _take(t, np.zeros(8 * (t.num_rows > 0), int)) for name, t in rows.items()}
        place = ("beginning", "middle", "end")[number % 3]
        yield f"one like {' and '.join(like)} more, at the {place}", insert(tables, rows, place)


def _list_without_rows(tables: Tables, structure: Structure) -> Iterator[str]:
    """Yield for each table below the one at the top a unit of that one without a row in it, but in the others."""
    if not structure.top:
        return
    known = sorted(set(tables[structure.top][structure.unit].to_pylist()))
    sizes = {unit: {n: t.num_rows for n, t in structure.take_rows(tables, [unit]).items()} for unit in known}
    for name in tables:
        lacking = [unit for unit in known if not sizes[unit][name]]
        yield from sorted(lacking, key=lambda unit: [*sizes[unit].values()].count(0))[:1]


def _list_neighbours_of_records(
    tables: Tables, records: int, rng: np.random.Generator, times: int
) -> Iterator[tuple[str, Tables]]:
    """Yield tables with as many rows more or fewer as one person may have: equal ones, the first, or any."""
    for number in range(times):
        fewer, more = dict(tables), {}
        for name, table in tables.items():
            gone = rng.choice(table.num_rows, records, replace=False) + 0
            if number == 0:
                gone = np.arange(records)
            fewer[name] = _take(table, np.delete(np.arange(table.num_rows), gone))
            like = rng.choice(table.num_rows, 1 if number % 2 else records)
            more[name] = _take(table, np.resize(like, records))
        yield f"{records} fewer {number + 1}", fewer
        place = ("beginning", "middle", "end")[number % 3]
        yield f"{records} more {number + 1}, at the {place}", insert(tables, more, place)


def insert(tables: Tables, rows: Tables, place: str) -> Tables:
    """Return the tables with more rows at the ``beginning``, in the ``middle`` or at the ``end``."""
    inserted = {}
    for name, table in tables.items():
        at = {"beginning": 0, "middle": table.num_rows // 2, "end": table.num_rows}[place]
        inserted[name] = pa.concat_tables([table.slice(0, at), rows[name], table.slice(at)]).combine_chunks()
    return inserted


def list_replacements(
    tables: Tables, structure: Structure, rng: np.random.Generator, times: int
) -> Iterator[tuple[str, Tables]]:
    """Yield tables with one row more of a person who is there already, in one table; none where no unit is enforced."""
    if not structure.unit or not structure.enforced:
        return
    units = structure.list_units(tables)
    for number in range(times):
        unit = str(rng.choice(units))
        own = structure.take_rows(tables, [unit])
        name = [name for name, table in tables.items() if own[name].num_rows][number % 3 - 3 :][0]
        row = _take(tables[name], rng.integers(0, tables[name].num_rows, 1))
        for column in row.column_names:
            if column == structure.unit or column == structure.above.get(name, ("", ""))[1]:
                row = _set_column(row, column, own[name][column].slice(0, 1).combine_chunks())
            elif column in structure.keys and name in {above for above, _ in structure.above.values()}:
                row = _set_column(row, column, pa.array([NEW]))
        rows = {n: row if n == name else table.slice(0, 0) for n, table in tables.items()}
        yield f"a row of {unit} more{' in ' + name if name else ''}", insert(tables, rows, "middle")


class Effort(NamedTuple):
    """How many tables are tried.

    ``neighbours``: of each kind; ``shuffles``: random orders; ``sorts``: whether rows are sorted by each column, too;
    ``size``: how many times as many persons the base has.
    """

    neighbours: int = 3
    shuffles: int = 1
    sorts: bool = False
    size: int = 1


SMALL, LARGE, ORDERS = Effort(), Effort(6, 3, sorts=True, size=2), Effort(0, 2)
"""In continuous integration; in `make audit`; and for faults that mere order shows."""


def list_others(tables: Tables, structure: Structure, effort: Effort, seed: int = 0) -> list[Other]:
    """Return the tables that a base is compared with: orders, neighbours, both, and one row more of a person."""
    rng, others = np.random.default_rng(seed), list[Other]()
    for name, reordered in list_orders(tables, rng, effort.shuffles):
        if effort.sorts or not name.startswith("sorted"):
            others.append(Other(name, reordered, Relation.REORDERED))
    others.append(Other(f"in batches of {BATCH_ROWS} rows", shuffle(tables, rng), Relation.REORDERED, BATCH_ROWS))
    for number, (name, neighbour) in enumerate(list_neighbours(tables, structure, rng, effort.neighbours)):
        others.append(Other(name, neighbour, Relation.NEIGHBOUR))
        batch_rows = BATCH_ROWS if number == 1 else None
        others.append(Other(f"{name}, shuffled", shuffle(neighbour, rng), Relation.NEIGHBOUR, batch_rows))
    for name, replaced in list_replacements(tables, structure, rng, effort.neighbours):
        others.append(Other(name, shuffle(replaced, rng), Relation.REPLACED))
    return others


# bases


def _draw_wide(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Return whole numbers that nearly all lie in one of the cells that the spec makes of them, many of them equal."""
    near = np.where(rng.random(rows) < 0.35, _HEAVY, rng.integers(_LOW, _HIGH, rows))
    return np.where(rng.random(rows) < 0.97, near, rng.integers(1, _WIDE, rows))


def make_rows(persons: int = 90, most: int = 7, seed: int = 0) -> Tables:
    """Return rows of persons, which agree in all columns but those that looks see inside cells of.

    A tenth of the rows is there twice, some persons have rows of all kinds, and some rows have no identifier.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, most + 1, persons)
    person, rows = np.repeat(np.arange(persons), sizes), int(sizes.sum())
    alike = rng.random(persons)[person] < 0.8

    def draw(values: int) -> np.ndarray:
        """Return one of so many whole numbers for each row, the same for rows of a person that are alike."""
        return np.where(alike, rng.integers(0, values, persons)[person], rng.integers(0, values, rows))

    start, level, sex = 14_600 + 45 * draw(16), 10 * draw(40), draw(2)
    columns = {
        "pid": pa.array([f"p{p:03d}" for p in person], mask=rng.random(rows) < 0.02),
        "wage": _draw_wide(rng, rows),
        "price": np.where(alike, 100 * draw(40), rng.integers(0, 5_000, rows)),
        "share": np.where(alike, draw(20) + rng.integers(0, 5, rows) / 10, np.round(rng.exponential(3.0, rows), 1)),
        "low": level,
        "high": level + draw(30),
        "start": pa.array(start, pa.int32()).cast(pa.date32()),
        "stop": pa.array(start + rng.integers(0, 5, rows), pa.int32()).cast(pa.date32()),
        "sex": pa.array(np.array(["f", "m"])[sex], mask=draw(20) == 0),
        "region": np.array(["north", "south", "east"])[draw(3)],
        "age": pa.array(20 + 7 * draw(9), mask=draw(10) == 0),
        "works": (draw(10) + 3 * sex) > 6,
    }
    table = pa.table(columns)
    again = rng.choice(rows, rows // 10, replace=False)
    return {"": pa.concat_tables([table, _take(table, again)]).take(pa.array(rng.permutation(rows + len(again))))}


def make_panel(persons: int = 90, seed: int = 0) -> Tables:
    """Return rows of persons in the order of a year, of which several are of one year, and of some none has any."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 9, persons)
    person, rows = np.repeat(np.arange(persons), sizes), int(sizes.sum())
    year = 2000 + rng.integers(0, 4, rows)
    columns = {
        "pid": [f"p{p:03d}" for p in person],
        "year": pa.array(year, mask=rng.random(rows) < 0.05),
        "sex": np.array(["f", "m"])[rng.integers(0, 2, persons)[person]],
        "age": rng.integers(20, 50, persons)[person] + year - 2000,
        "income": np.round(np.clip(rng.integers(1, 9, persons)[person] * 10 + rng.normal(0, 4, rows), 0, 100), 1),
        "wage": _draw_wide(rng, rows),
        "job": np.array(["none", "part", "full"])[rng.integers(0, 3, rows)],
    }
    return {"": pa.table(columns).take(pa.array(rng.permutation(rows)))}


def make_households(households: int = 90, seed: int = 0) -> Tables:
    """Return members of households: some have two heads or partners, and most several children."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 8, households)
    home, rows = np.repeat(np.arange(households), sizes), int(sizes.sum())
    columns = {
        "hid": [f"h{h:03d}" for h in home],
        "region": np.array(["north", "south"])[rng.integers(0, 2, households)[home]],
        "role": np.array(ROLES)[rng.choice(3, rows, p=[0.3, 0.2, 0.5])],
        "age": rng.integers(0, 90, rows),
        "sex": np.array(["f", "m"])[rng.integers(0, 2, rows)],
        "income": np.round(rng.uniform(0, 100, rows), 1),
    }
    return {"": pa.table(columns).take(pa.array(rng.permutation(rows)))}


def make_members(households: int = 90, seed: int = 0) -> Tables:
    """Return homes and members: homes and members are there twice, and some homes have no member, or none with a role.

    Some members are of a home that is in no table, or of two homes.
    """
    rng = np.random.default_rng(seed)
    members = make_households(households, seed)[""].drop_columns(["region"])
    rows = members.num_rows
    numbers = rng.integers(0, 4, rows)
    keys = [f"{hid}-m{n}" for hid, n in zip(members["hid"].to_pylist(), numbers, strict=True)]
    members = members.append_column("mid", pa.array(keys))
    hids = [f"h{h:03d}" for h in range(households + households // 10)]
    homes = pa.table(
        {"hid": hids, "region": rng.choice(["north", "south"], len(hids)), "rooms": rng.integers(1, 12, len(hids))}
    )
    again = _take(homes, rng.choice(households, households // 4, replace=False))
    again = _set_column(again, "region", pa.array(rng.choice(["north", "south"], again.num_rows)))
    roles = pa.array(members["role"].to_pylist(), mask=rng.random(rows) < 0.05)
    members = _set_column(members, "role", roles)
    stray = _set_column(members.slice(0, 5), "hid", pa.array(["nobody"] * 5))
    return shuffle({"homes": pa.concat_tables([homes, again]), "members": pa.concat_tables([members, stray])}, rng)


def make_tree(persons: int = 90, seed: int = 0) -> Tables:
    """Return persons, visits, drugs of visits and purchases.

    Persons and visits are there twice, with other columns; visits of a person are equal in all columns but their key,
    and have other drugs.  Some persons have no visit, some no visit with a year, some visits no drug, and some rows
    name a person or a visit that no table has, or none.
    """
    rng = np.random.default_rng(seed)
    pids = [f"p{p:03d}" for p in range(persons)]
    sex = rng.choice(["f", "m"], persons)
    top = pa.table({"pid": pids, "sex": sex, "height": rng.integers(150, 200, persons)})
    again = _take(top, rng.choice(persons, persons // 3, replace=False))
    again = _set_column(again, "height", pa.array(rng.integers(150, 200, again.num_rows)))
    person = np.repeat(np.arange(persons), rng.integers(0, 6, persons))
    rows = len(person)
    alike = rng.random(persons)[person] < 0.7
    year = np.where(alike, 2003, 2000 + rng.integers(0, 6, rows))
    job = np.where(alike, "full", rng.choice(["none", "part", "full"], rows))
    visits = pa.table(
        {
            "pid": pa.array([pids[p] for p in person], mask=rng.random(rows) < 0.02),
            "visit": pa.array([f"v{i:04d}" for i in range(rows)], mask=rng.random(rows) < 0.02),
            "year": pa.array(year, mask=(rng.random(rows) < 0.06) | (person % 5 == 0)),
            "job": job,
            "cost": np.where(alike, 100, rng.integers(0, 5_000, rows)),
        }
    )
    twice = _take(visits, rng.choice(rows, rows // 6, replace=False))
    twice = _set_column(twice, "job", pa.array(rng.choice(["none", "part", "full"], twice.num_rows)))
    stray = _set_column(visits.slice(0, 4), "pid", pa.array(["nobody"] * 4))
    stray = _set_column(stray, "visit", pa.array([f"s{i}" for i in range(4)]))
    of = rng.choice(rows, 2 * rows)
    keys = [None if k is None else str(k) for k in visits["visit"].take(pa.array(of)).to_pylist()]
    drugs = pa.table(
        {
            "visit": [*keys, *["v-nobody"] * 4],
            "drug": [f"d{i:04d}" for i in range(len(keys) + 4)],
            "day": rng.integers(0, 6, len(keys) + 4),
            "dose": rng.integers(0, 3, len(keys) + 4),
        }
    )
    buyer = rng.integers(0, persons, 2 * persons)
    buys = pa.table(
        {
            "pid": [pids[p] for p in buyer],
            "week": rng.integers(1, 6, 2 * persons),
            "online": rng.integers(0, 2, 2 * persons),
        }
    )
    tables = {"persons": pa.concat_tables([top, again]), "visits": pa.concat_tables([visits, twice, stray])}
    return shuffle(tables | {"drugs": drugs, "buys": buys}, rng)


def make_numbered_tree(persons: int = 90, seed: int = 0) -> Tables:
    """Return the tables of :func:`make_tree`, with visits that are numbered within each person, whom drugs name."""
    tables = make_tree(persons, seed)
    visits, drugs = tables["visits"], tables["drugs"]
    whose = dict(zip(visits["visit"].to_pylist(), visits["pid"].to_pylist(), strict=True))
    number: dict[str | None, dict[str | None, str]] = {}
    for key, pid in whose.items():
        own = number.setdefault(pid, {})
        own[key] = f"n{len(own)}"
    of = drugs["visit"].to_pylist()
    named = [number.get(whose.get(key), {}).get(key) for key in visits["visit"].to_pylist()]
    below = [number.get(whose.get(key), {}).get(key) for key in of]
    drugs = _set_column(drugs, "visit", pa.array(below, pa.string()))
    drugs = drugs.append_column("pid", pa.array([whose.get(key) for key in of], pa.string()))
    return tables | {"visits": _set_column(visits, "visit", pa.array(named, pa.string())), "drugs": drugs}
