"""Attributes beside a column: its weekday, hour and round minutes, and the difference of two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.tasks.codecs import plan
from privsyn.tasks.codecs.cells import CutCell
from privsyn.tasks.codecs.dates_and_times import CalendarPart, name_calendar_attribute
from privsyn.tasks.codecs.derived import DifferenceCodec
from tests.support.specs import make_spec

MOMENT = {"kind": "datetime", "min": "2020-01-01", "max": "2024-01-01", "resolution": "minute"}
DAY = {"kind": "date", "min": "2020-01-01", "max": "2024-01-01"}
TIME = {"kind": "time", "format": "HH:MM"}
ON = {"mechanism": {"compression": {"calendar": True}}}


def build_spec(**columns: Any) -> ReleaseSpec:
    return make_spec({**columns, "n": {"kind": "integer", "min": 0, "max": 9}}, **ON)


@pytest.mark.parametrize("column", [{**DAY, "bins": 12}, {**DAY, "edges": ["2020-01-01", "2022-01-01", "2024-01-01"]}])
def test_bins_of_ones_own_are_kept(column: dict[str, Any]) -> None:
    assert plan(build_spec(born=column)).domain.attributes == ("born", "n")


def test_codes_say_what_the_moment_is() -> None:
    encoding = plan(build_spec(seen={**MOMENT, "nullable": True}))
    moments = np.array(["2024-01-01T00:00", "2021-06-26T15:30", "2021-06-27T23:47", "NaT"], dtype="datetime64[s]")
    parts = {p: encoding.get_codec(name_calendar_attribute("seen", p)) for p in CalendarPart}
    found = {p: [c.labels()[i] for i in c.encode({"seen": pa.array(moments)})[0]] for p, c in parts.items()}
    assert found[CalendarPart.WEEKDAY] == ["Monday", "Saturday", "Sunday", "(none)"]
    assert found[CalendarPart.HOUR] == ["00", "15", "23", "(none)"]
    assert found[CalendarPart.MINUTE] == ["60 min", "30 min", "no round minute", "(none)"]


@pytest.mark.parametrize(("name", "column"), [("seen", MOMENT), ("born", DAY)])
def test_drawn_values_have_the_parts_that_the_row_has(name: str, column: dict[str, Any]) -> None:
    """In cells of a week and more; narrower ones lack some parts."""
    encoding = plan(build_spec(**{name: column}), cuts=[CutCell(name, 0.0, False)])  # the column's own cells
    rng, rows = np.random.default_rng(0), 5_000
    parts = [c for c in encoding.codecs if "(" in c.attribute]
    domain = encoding.domain
    codes = {a: rng.integers(1 if "(" in a else 0, domain.size(a), rows) for a in domain.attributes}
    columns = encoding.decode(codes, rng)
    own = encoding.get_codec(name)
    assert np.array_equal(own.encode({name: columns[name]})[0], codes[name])  # each value stays in its cell
    for codec in parts:
        assert np.array_equal(codec.encode({name: columns[name]})[0], codes[codec.attribute])


def test_times_of_day_have_the_round_minutes_that_their_cells_have() -> None:
    encoding, rng = plan(build_spec(leaves=TIME)), np.random.default_rng(0)
    own, part = (encoding.get_codec(a) for a in ("leaves", "leaves (minutes rounded to)"))
    every = pa.array([f"{m // 60:02}:{m % 60:02}" for m in range(1_440)])
    possible = {
        *zip(own.encode({"leaves": every})[0].tolist(), part.encode({"leaves": every})[0].tolist(), strict=True)
    }
    cells, wanted = (n.ravel() for n in np.meshgrid(np.arange(own.size), np.arange(1, part.size), indexing="ij"))
    codes = {"leaves": cells, part.attribute: wanted, "n": np.zeros(len(cells), int)}
    drawn = [encoding.decode(codes, rng)["leaves"] for _ in range(20)]
    found = np.array([part.encode({"leaves": values})[0] for values in drawn])
    can = np.array([pair in possible for pair in zip(cells.tolist(), wanted.tolist(), strict=True)])
    assert (found == wanted).any(axis=0)[can].all()
    for values in drawn:
        assert np.array_equal(own.encode({"leaves": values})[0], cells)


KINDS: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "integer": ({"kind": "integer", "min": 0, "max": 999}, pa.array([7, 7, 8, 3, 999]), pa.array([7, 8, 7, 9, 0])),
    "decimals": (
        {"kind": "number", "min": 0, "max": 9.99, "decimals": 2},
        pa.array([0.07, 0.07, 0.08, 0.03, 9.99]),
        pa.array([0.07, 0.08, 0.07, 0.09, 0.0]),
    ),
    "date": (
        {"kind": "date", "min": "1970-01-01", "max": "1972-09-26"},
        pa.array([7, 7, 8, 3, 999], pa.date32()),
        pa.array([7, 8, 7, 9, 0], pa.date32()),
    ),
}


def build_codec(column: dict[str, Any]) -> DifferenceCodec:
    (codec,) = plan(make_spec({"a": column, "b": column}, compare=[["a", "b"]])).differences
    return codec


@pytest.mark.parametrize("kind", KINDS)
def test_codes_say_sign_and_size(kind: str) -> None:
    column, a, b = KINDS[kind]
    codec = build_codec(column)
    codes, repairs = codec.encode({"a": a, "b": b})
    zero = codec.zero
    assert codes.tolist() == [zero, zero - 1, zero + 1, zero - 3, zero + 10]  # 6 is from 4 to 7, 999 from 512 to 1023
    assert not repairs
    assert codec.signs[codes].tolist() == [0, -1, 1, -1, 1]


def test_null_is_missing_and_values_outside_are_counted_as_the_columns_count_them() -> None:
    codec = build_codec({"kind": "integer", "min": 0, "max": 9, "nullable": True})
    codes, _ = codec.encode({"a": pa.array([None, 3, -50]), "b": pa.array([3, None, 0])})
    assert codes.tolist() == [codec.missing, codec.missing, codec.zero]


@pytest.mark.parametrize("kind", KINDS)
def test_a_drawn_difference_has_its_code(kind: str) -> None:
    codec = build_codec(KINDS[kind][0])
    codes = np.repeat(np.arange(codec.missing), 50)
    drawn = codec.draw(codes, np.random.default_rng(0))
    assert np.array_equal(codec.find_codes(drawn, np.zeros(len(drawn))), codes)


def test_values_on_no_grid_have_a_cell_for_equality_alone() -> None:
    codec = build_codec({"kind": "number", "min": 0, "max": 1})
    found = codec.find_codes(np.array([0.5, 0.5, 0.5]), np.array([0.5, 0.5 + 1e-12, 0.5 - 1e-12]))
    assert found.tolist() == [codec.zero, codec.zero - 1, codec.zero + 1]
