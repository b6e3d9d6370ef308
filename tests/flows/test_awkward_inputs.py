"""Whole releases of awkward tables: whatever stands in the rows, a valid table in the public domain comes out."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.tables import make_value_profile
from privsyn.publish.folder import is_whole
from privsyn.tasks.codecs import plan
from privsyn.tasks.privacy.noise import NoNoise
from tests.support.examples import keep_first
from tests.support.releases import release_in_process
from tests.support.specs import COLUMNS, make_spec, people

Save = Callable[..., str]
QUICK: dict[str, Any] = {"synthesis": {"iterations": 2}}
SEX: dict[str, Any] = {"kind": "categorical", "values": ["f", "m"]}


def valid(spec: ReleaseSpec, **how: Any) -> pa.Table:
    """The released table, after checks that every release must pass: whole, complete, within the public domain."""
    summary = release_in_process(spec, Settings(), **how)
    folder = Path(summary.released)
    table = pq.read_table(folder / "synthetic.parquet")
    ranges = plan(spec).ranges()
    assert set(table.column_names) == set(spec.released_columns)
    assert table.num_rows == summary.rows
    profile = make_value_profile(table.to_batches(), {name: ranges[name] for name in table.column_names})
    assert pc.all(profile["type_matches"]).as_py() in (True, None)
    assert sum(profile["outside"].to_pylist()) == sum(profile["unwanted_nulls"].to_pylist()) == 0
    assert is_whole(folder)
    assert json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["rows"] == summary.rows
    return table


def repairs(spec: ReleaseSpec) -> dict[tuple[str, str], int]:
    """What encoding mended, from the private zone."""
    (path,) = Settings().private_root.glob("runs/*/repairs.json")
    rows = json.loads(path.read_text(encoding="utf-8"))["repairs"]
    return {(row["column"], row["repair"]): row["rows"] for row in rows}


@pytest.mark.parametrize("rows", keep_first([0, 1]))
def test_hardly_any_rows(places: Path, save: Save, rows: int) -> None:
    spec = make_spec(data=save(people(5).slice(0, rows)), **QUICK)
    assert valid(spec).num_rows < 2_000  # noise alone: about sigma times the root of the cells
    fixed = spec.with_rows(rows=25)
    assert valid(fixed).num_rows == 25


def test_no_rows_and_no_noise_give_no_rows(places: Path, save: Save) -> None:
    assert valid(make_spec(data=save(people(0)), **QUICK), noise=NoNoise()).num_rows == 0
    # A tiny epsilon gives a valid table.
    table = valid(make_spec(data=save(people(300)), privacy={"epsilon": 0.01, "delta": 1e-9}, **QUICK))
    assert table.num_rows < 500_000


@pytest.mark.parametrize("column", keep_first(["seen", "region", "age", "income", "happy"], 2))
def test_one_column(places: Path, save: Save, column: str) -> None:
    privacy = {"epsilon": 8.0, "delta": 1e-9}
    data = save(people(400).select([column]))
    table = valid(make_spec({column: COLUMNS[column]}, data=data, privacy=privacy, **QUICK))
    assert table.column_names == [column]
    assert abs(table.num_rows - 400) < 250


def test_a_constant_column_and_a_domain_of_one_value(places: Path, save: Save) -> None:
    flat = {"kind": "number", "min": 0, "max": 1}
    columns = {"sex": SEX, "same": {"kind": "integer", "min": 7, "max": 7}, "flat": flat}
    data = pa.table({"sex": ["f", "m"] * 150, "same": [7] * 300, "flat": [0.25] * 300})
    table = valid(make_spec(columns, data=save(data), privacy={"epsilon": 8.0, "delta": 1e-9}, **QUICK))
    assert set(table["same"].to_pylist()) == {7}
    assert np.mean(np.abs(table["flat"].to_numpy() - 0.25) < 0.05) > 0.9


@pytest.mark.parametrize("nullable", [True, False])
def test_columns_of_nulls(places: Path, save: Save, nullable: bool) -> None:
    columns = {name: {**c, "nullable": nullable} for name, c in COLUMNS.items() if name != "caseid"}
    columns["plain"] = SEX
    nulls = {name: pa.nulls(300, people(1)[name].type) for name in columns if name != "plain"}
    spec = make_spec(columns, data=save(pa.table({**nulls, "plain": ["f", "m"] * 150})), **QUICK)
    table = valid(spec, noise=NoNoise())
    assert table.num_rows == 300
    for name in ("age", "income", "happy", "seen"):
        assert table[name].null_count == (300 if nullable else 0), name
    if not nullable:
        assert pc.max(table["age"]).as_py() < 21  # the bin of the minimum
        assert pc.any(table["happy"]).as_py() is False
        assert repairs(spec)["age", "null"] == 300


@pytest.mark.parametrize("number", [40, pytest.param(300, marks=pytest.mark.slow)])
def test_many_columns(places: Path, save: Save, number: int) -> None:
    names = [f"c{i:03d}" for i in range(number)]
    rng = np.random.default_rng(2)
    data = pa.table({name: rng.random(150) < 0.5 for name in names})
    columns = {name: {"kind": "boolean"} for name in reversed(names)}
    privacy = {"epsilon": 5.0, "delta": 1e-9}
    table = valid(make_spec(columns, data=save(data), privacy=privacy, synthesis={"iterations": 1, "rows": 60}))
    assert table.column_names == names  # the source's order, not the spec's
    assert table.num_rows == 60


NAMES = [
    "two words",
    "größe",
    "名前",
    "a|b",
    "a/b",
    "../x",
    'q"q',
    "line\nbreak",
    "<b>&amp;",
    "%s{0}",
    "a.b",
    "C:\\x",
    "-",
]


@pytest.mark.parametrize("form", keep_first(["csv", "parquet"]))
def test_names_of_every_kind(places: Path, save: Save, form: str) -> None:
    data = pa.table({name: ["f", "m"] * 60 for name in NAMES})
    path = save(data)
    if form == "csv":
        path = str(places / "names.csv")
        data.to_pandas().to_csv(path, index=False)
    table = valid(make_spec(dict.fromkeys(NAMES, SEX), data=path, **QUICK))
    assert table.column_names == NAMES
    for settled in (Settings().private_root, Settings().released_root):
        assert not [p for p in settled.rglob("*") if "größe" in p.name or p.name == "x"]


def test_a_csv_with_a_byte_order_mark_mixed_line_ends_and_quoted_breaks(places: Path) -> None:
    text = '\ufeffsex,note,age\r\nf,"a\nb",20\nm,"a\r\nb",NA\r\n\nf,"say ""x"", y",30\nf,,3e1'
    (places / "t.csv").write_bytes(text.encode())
    columns = {
        "sex": SEX,
        "note": {"kind": "categorical", "values": ["a\nb", "a\r\nb", 'say "x", y'], "nullable": True},
        "age": {"kind": "integer", "min": 0, "max": 40, "nullable": True},
    }
    how = {"null_values": ["", "NA"], "csv": {"line_breaks": True}, "compression": {"enabled": False}, **QUICK}
    spec = make_spec(columns, data=str(places / "t.csv"), **how)
    table = valid(spec, noise=NoNoise())
    assert sorted(table["sex"].to_pylist()) == ["f", "f", "f", "m"]
    assert sorted(map(str, table["note"].to_pylist())) == sorted(["a\nb", "a\r\nb", 'say "x", y', "None"])
    assert sorted(table["age"].drop_null().to_pylist()) == [20, 30, 30]
    assert not any(repairs(spec).values())


def test_a_folder_with_differing_row_groups_types_and_column_orders(places: Path) -> None:
    folder, table = places / "parts", people(600)
    folder.mkdir()
    pq.write_table(table.slice(0, 200), folder / "a.parquet", row_group_size=17)
    mixed = table.slice(200, 200).set_column(0, "age", table["age"].slice(200, 200).cast(pa.float32()))
    pq.write_table(mixed.select(["seen", "happy", "region", "income", "caseid", "age"]), folder / "b.parquet")
    coded = table.slice(400).set_column(2, "region", table["region"].slice(400).dictionary_encode())
    pq.write_table(coded, folder / "c.parquet", row_group_size=1)
    pq.write_table(table, places / "whole.parquet")
    tables = [valid(make_spec(data=str(p), **QUICK), noise=NoNoise()) for p in (folder, places / "whole.parquet")]
    assert tables[0].num_rows == 600
    assert tables[0].equals(tables[1])


def marginal(table: pa.Table, spec: ReleaseSpec, names: tuple[str, ...]) -> np.ndarray:
    """Shares of the public bins of the columns."""
    codecs = {codec.attribute: codec for codec in plan(spec).codecs}
    bins = [codecs[n].groups[codecs[n].encode({n: table[n].combine_chunks()})[0]] for n in names]
    shape = [int(codecs[n].groups.max()) + 1 for n in names]
    counts = np.bincount(np.ravel_multi_index(bins, shape), minlength=int(np.prod(shape)))
    return counts / max(1, counts.sum())


def test_at_a_huge_epsilon_the_datas_marginals_come_back(places: Path, save: Save) -> None:
    data = people(3_000)
    generous = {"epsilon": 1e5, "delta": 1e-9}
    spec = make_spec(data=save(data), privacy=generous, budget=generous)
    table = valid(spec)
    assert abs(table.num_rows - 3_000) <= 30
    for name in table.column_names:
        assert np.abs(marginal(table, spec, (name,)) - marginal(data, spec, (name,))).sum() < 0.08, name
    for pair in (("age", "income"), ("age", "region"), ("income", "happy")):
        independent = np.outer(marginal(data, spec, pair[:1]), marginal(data, spec, pair[1:])).ravel()
        exact, made = marginal(data, spec, pair), marginal(table, spec, pair)
        assert np.abs(made - exact).sum() < 0.15, pair
        assert np.abs(made - exact).sum() < 0.3 * np.abs(independent - exact).sum(), pair


def test_without_noise_every_measured_count_is_exact(places: Path, save: Save) -> None:
    data = people(500)
    spec = make_spec(data=save(data), compression={"enabled": False}, **QUICK)
    summary = release_in_process(spec, Settings(), noise=NoNoise())
    folder = Path(summary.released) / "marginals"
    receipts, noisy = pq.read_table(folder / "one_way_receipts.parquet"), pq.read_table(folder / "one_way.parquet")
    codecs = {codec.attribute: codec for codec in plan(spec).codecs}
    for i, (name,) in enumerate(receipts["attributes"].to_pylist()):
        codes = codecs[name].encode({name: data[name].combine_chunks()})[0]
        counted = noisy.filter(pc.equal(noisy["query"], i))["count"].to_numpy()
        assert np.array_equal(counted, np.bincount(codes, minlength=codecs[name].size))
    assert summary.rows == 500


ODD: dict[str, list[Any]] = {
    "age": [-(2**63), 2**63 - 1, 0, None],
    "income": [float("nan"), float("inf"), -float("inf"), 1e308],
    "region": ["", "\x00", "x" * 10_000, None],
    "happy": [True, None, False, None],
}


def test_values_out_of_the_domain_never_fail(places: Path, save: Save) -> None:
    columns = {name: COLUMNS[name] for name in ODD}
    grid = list(itertools.product(*ODD.values()))
    data = pa.table({name: [row[i] for row in grid] for i, name in enumerate(ODD)})
    spec = make_spec(columns, data=save(data), compression={"enabled": False}, **QUICK)
    assert valid(spec, noise=NoNoise()).num_rows == len(grid)
    mended = repairs(spec)
    assert mended["age", "below min"] == 2 * len(grid) // 4
    assert mended["region", "unlisted"] == 3 * len(grid) // 4
    assert mended["income", "above max"] == 2 * len(grid) // 4


def test_text_where_numbers_belong_never_fails(places: Path) -> None:
    rows = ["old,1e999,N,perhaps,yesterday,1", "１２,--,north,1,2015-02-30,2", " 30 ,0x10,,,,"] * 21
    (places / "t.csv").write_text("\n".join(["age,income,region,happy,seen,caseid", *rows]), encoding="utf-8")
    spec = make_spec(data=str(places / "t.csv"), compression={"enabled": False}, **QUICK)
    assert valid(spec, noise=NoNoise()).num_rows == 63
    assert repairs(spec)["age", "unparseable"] >= 21


def test_records_that_cannot_be_read_fail_nothing_and_change_no_other(places: Path) -> None:
    """Each is left out and counted in the private zone, with an open quotation mark, too; a bad cell is null."""
    whole = [b"f,20", b"m,30", b"f,40"]
    broken = [b'm,"30', b"f", b"f,20,m", b'"f,20', b"\xff", b"\xff,20"]
    (places / "t.csv").write_bytes(b"\n".join([b"sex,age", *broken[:3], *whole, *broken[3:]]))
    columns = {"sex": {**SEX, "unlisted": "null"}, "age": {"kind": "integer", "min": 0, "max": 40}}
    spec = make_spec(columns, data=str(places / "t.csv"), compression={"enabled": False}, **QUICK)
    table = valid(spec, noise=NoNoise())
    assert sorted(map(str, table["sex"].to_pylist())) == ["None", "f", "f", "m"]
    found = repairs(spec)
    assert (found["", "record left out"], found["sex", "not UTF-8"]) == (5, 1)
