"""Bug classes 9, 14, 15 and 16: what a value, an order or a person's many rows may change, and what not.

It does not see trends, named sets, other mechanisms, priors, databases and itemsets: `test_referee.py` does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from audit.referee_tables import make_rows
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.pipelines.common_steps import ENCODE
from privsyn.tasks.codecs import ordered, parsing, plan
from privsyn.tasks.codecs.encode_rows import Repairs, encode_batch
from privsyn.tasks.kernels.counting import CodeTable, count
from privsyn.tasks.panels import row_order
from privsyn.tasks.panels.row_order import RowOrder, SortedRows
from privsyn.tasks.privacy.noise import NoNoise
from privsyn.tasks.steps.decode import build_released_schema
from tests.support.releases import QUICK, few, outputs, released, run
from tests.support.specs import COLUMNS, make_spec, people

Save = Callable[..., str]
BOUNDED = {"age": COLUMNS["age"], "income": COLUMNS["income"], "seen": COLUMNS["seen"]}


def encoded(table: pa.Table, spec: ReleaseSpec) -> pa.Table:
    return outputs(ENCODE, {}, spec, rows=table.to_batches)["encoded_rows"]


# 9: clipping computed, then ignored


def one_ways(table: pa.Table) -> dict[str, list[int]]:
    """Exact one-ways of the bounded columns, in fine codes, out of a spec's codes."""
    spec = make_spec(BOUNDED)
    codes, domain = encoded(table, spec), plan(spec, tuple(BOUNDED)).domain
    rows = CodeTable.from_arrow(codes.to_batches(), domain)
    return {a: count(rows, (a,)).tolist() for a in domain.attributes}


def far_out() -> pa.Table:
    moments = pa.array([10**11, -(10**11)], pa.int64()).cast(pa.timestamp("s"))
    return pa.table({"age": [10**9, -(10**9)], "income": [1e300, -np.inf], "seen": moments})


def clipping_holds() -> bool:
    """Whether values far outside count as the first and last cell of their own column, and nowhere else."""
    counts = one_ways(far_out())
    return all(
        cells[0] == 1 and cells[len(cells) - 1 - BOUNDED[name].get("nullable", False)] == 1 and sum(cells) == 2
        for name, cells in counts.items()
    )


def test_09_values_out_of_bounds_change_their_own_clipped_cell_only() -> None:
    assert clipping_holds()


def test_09_mutant_clipping_that_is_computed_and_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: the codes are clipped into a variable that nobody reads, and wrap around."""

    class Ignoring:
        def __getattr__(self, name: str) -> Any:
            return getattr(np, name)

        @staticmethod
        def clip(values: np.ndarray, low: int, high: int) -> np.ndarray:
            np.clip(values, low, high)
            return np.abs(values) % (high + 1)

    monkeypatch.setattr(ordered, "np", Ignoring())
    assert not clipping_holds()


# 14: row order, partitions, file metadata

TABLES = ("one_way", "scores", "measured", "consistent", "recode", "rung_counts", "cut_cells", "value_counts")
COUNTED = ("cut_cells", "counted_values")
"""What noisy counts found, so that later looks see inside cells: tables that must not be empty."""


def without_noise(spec: ReleaseSpec) -> list[pa.Table]:
    """All tables of a run without noise, so that two of them can be compared."""
    summary = run(spec, noise=NoNoise())
    assert all(released(summary, f"marginals/{name}.parquet").num_rows for name in COUNTED)
    names = [f"marginals/{name}.parquet" for name in (*TABLES, *COUNTED)]
    return [released(summary, name) for name in (*names, "synthetic.parquet")]


def tied() -> pa.Table:
    """Rows of persons who have up to seven: they agree in every code and differ inside the cells of wages.

    Nearly all wages lie in one cell, and a third of them are equal.
    """
    return make_rows(300)[""].select(["pid", "wage", "region"])


def tied_spec(data: str) -> ReleaseSpec:
    columns: dict[str, Any] = {
        "pid": {"kind": "drop"},
        "wage": {"kind": "integer", "min": 1, "max": 9_999},
        "region": {"kind": "categorical", "values": ["north", "south", "east"]},
    }
    budget = {"epsilon": 20.0, "delta": 1e-9}
    unit = {"person_id": "pid", "max_records": 2}
    return make_spec(columns, data=data, unit=unit, privacy=budget, budget={**budget, "epsilon": 50.0}, **QUICK)


def is_equal_in_any_order(places: Path, save: Save) -> bool:
    """Whether the same rows, shuffled and in many files, give the same release."""
    rows = tied()
    shuffled = rows.take(np.random.default_rng(3).permutation(rows.num_rows))
    parts = places / "parts"
    parts.mkdir()
    for number, start in enumerate(range(0, rows.num_rows, 400)):
        pq.write_table(shuffled.slice(start, 400), parts / f"part-{number}.parquet", row_group_size=150)
    first, second = (without_noise(tied_spec(data)) for data in (save(rows), str(parts)))
    return all(one.equals(other) for one, other in zip(first, second, strict=True))


def test_14_row_order_and_partitions_do_not_matter(places: Path, save: Save) -> None:
    assert is_equal_in_any_order(places, save)


def test_14_mutant_a_hash_of_coarse_codes(places: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: rows of a person are chosen by their codes, and where these are equal as they are stored."""
    original, coarse = RowOrder.hash_rows, plan(tied_spec("-"))

    def hash_codes(order: RowOrder, batch: pa.RecordBatch) -> row_order.Words:
        return original(order, encode_batch(batch, coarse, Repairs()))

    monkeypatch.setattr(RowOrder, "hash_rows", hash_codes)
    monkeypatch.setattr(row_order, "_sort_by_content", lambda order, same, read: None)
    assert not is_equal_in_any_order(places, save)


def test_14_mutant_truncation_by_position(places: Path, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: a person's first rows in the file are kept, not the first ones by their content."""
    monkeypatch.setattr(RowOrder, "hash_rows", lambda order, batch: np.arange(batch.num_rows, dtype=np.uint64))
    rows = pa.table({"pid": ["a"] * 4, "age": [20, 30, 40, 50]})
    spec = make_spec({"pid": {"kind": "drop"}, "age": COLUMNS["age"]}, unit={"person_id": "pid", "max_records": 2})
    kept = [sorted(encoded(table, spec)["age"].to_pylist()) for table in (rows, rows.take([3, 2, 1, 0]))]
    assert kept[0] != kept[1]
    monkeypatch.undo()
    kept = [sorted(encoded(table, spec)["age"].to_pylist()) for table in (rows, rows.take([3, 2, 1, 0]))]
    assert kept[0] == kept[1]


def test_14_synthetic_rows_do_not_follow_the_sources_order(places: Path, save: Save) -> None:
    """Sorted private rows do not give sorted synthetic ones."""
    summary = run(make_spec(data=save(people(400).sort_by("income")), **QUICK), noise=NoNoise())
    income = released(summary, "synthetic.parquet")["income"].to_numpy()
    assert abs(np.corrcoef(income, np.arange(len(income)))[0, 1]) < 0.2


def metadata_of(folder: Path) -> list[str]:
    """Released Parquet files that carry anything beside their columns and how pandas is to read these."""
    found = []
    for path in folder.rglob("*.parquet"):
        schema = pq.ParquetFile(path).schema_arrow
        metadata = dict(schema.metadata or {})
        ranges = plan(few("people.parquet")).list_table_ranges(schema.names) if path.stem == "synthetic" else {}
        own = build_released_schema(ranges).metadata if ranges else {}
        if metadata != (own or {}):
            found.append(path.name)
    return found


def source_with_metadata(places: Path) -> str:
    table = people(200).replace_schema_metadata({"pandas": '{"index_columns": ["CANARY"]}', "author": "CANARY"})
    pq.write_table(table, places / "people.parquet")
    return str(places / "people.parquet")


def test_14_released_files_carry_no_metadata_of_the_source(places: Path) -> None:
    assert metadata_of(Path(run(few(source_with_metadata(places))).released)) == []


def test_14_mutant_metadata_of_the_source_in_a_released_file(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: a writer that hands metadata on."""

    def handing_on(path: Path, rows: Any, schema: pa.Schema) -> None:
        batches = rows.to_batches() if isinstance(rows, pa.Table) else list(rows)
        pq.write_table(pa.Table.from_batches(batches, schema).replace_schema_metadata({"author": "CANARY"}), path)

    data = source_with_metadata(places)
    monkeypatch.setattr("privsyn.storage.store.write_parquet", handing_on)
    assert metadata_of(Path(run(few(data)).released)) != []


# 15: NaN, empty, constant or one-value columns

AWKWARD: dict[str, Callable[[int], Any]] = {
    "null": lambda n: pa.nulls(n, pa.float64()),
    "nan": lambda n: np.full(n, np.nan),
    "infinite": lambda n: np.full(n, np.inf),
    "constant": lambda n: np.full(n, 30.0),
    "one other": lambda n: np.array([1e6] + [30.0] * (n - 1))[:n],
    "text": lambda n: pa.array(["zanzibar"] * n, pa.string()),
}


def fate(rows: int, values: Callable[[int], Any]) -> str:
    """What becomes of a table with such columns in the step that sees values."""
    table = pa.table({"age": values(rows), "income": values(rows), "seen": values(rows)})
    try:
        codes = encoded(table, make_spec(BOUNDED))
    except Exception as error:
        return type(error).__name__
    return f"{codes.num_rows} rows" if codes.num_rows == rows else "rows lost"


@pytest.mark.parametrize("values", AWKWARD.values(), ids=list(AWKWARD))
@pytest.mark.parametrize("rows", [0, 1, 7])
def test_15_no_value_ever_fails_a_release(rows: int, values: Callable[[int], Any]) -> None:
    assert fate(rows, values) == f"{rows} rows"


def test_15_mutant_an_error_that_depends_on_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: numbers that are all missing are an error, so that one person decides whether a release fails."""
    original = parsing.to_numbers

    def refusing(array: Any) -> Any:
        numbers, is_null = original(array)
        if len(numbers) and np.isnan(numbers).all():
            raise ValueError("no numbers")
        return numbers, is_null

    monkeypatch.setattr(parsing, "to_numbers", refusing)
    assert fate(7, AWKWARD["nan"]) != fate(7, AWKWARD["constant"])


@pytest.mark.parametrize("rows", [0, 40])
def test_15_awkward_columns_together_are_released(places: Path, save: Save, rows: int) -> None:
    kinds = {"kind": "number", "min": 0, "max": 100, "bins": 4}
    table = pa.table({name.replace(" ", "_"): values(rows) for name, values in AWKWARD.items()})
    summary = run(make_spec(dict.fromkeys(table.column_names, kinds), data=save(table), **QUICK))
    assert released(summary, "synthetic.parquet").column_names == table.column_names


# 16: several records a person


def rows_that_a_person_changes(rows: int, unit: dict[str, Any]) -> int:
    """L1 change of the encoded rows' counts when a person with so many rows is added."""
    columns = {"pid": {"kind": "drop"}, "age": COLUMNS["age"], "happy": COLUMNS["happy"]}
    spec = make_spec(columns, unit=unit)
    others = pa.table({"pid": ["a", "a", "a", "b", None], "age": [20, 20, 70, 30, 44], "happy": [True] * 5})
    ages = (np.arange(rows) % 50) + 20
    person = pa.table({"pid": ["p"] * rows, "age": ages, "happy": ages % 2 == 0})
    domain = plan(spec, ("age", "happy")).domain
    counts = [histogram(encoded(t, spec), domain) for t in (others, pa.concat_tables([others, person]))]
    return int(np.abs(counts[0] - counts[1]).sum())


def histogram(codes: pa.Table, domain: Domain) -> np.ndarray:
    return count(CodeTable.from_arrow(codes.to_batches(), domain), domain.attributes)


@pytest.mark.parametrize("most", [1, 3])
def test_16_a_person_changes_no_more_rows_than_the_unit_says(most: int) -> None:
    changed = partial(rows_that_a_person_changes, unit={"person_id": "pid", "max_records": most})
    assert [changed(n) for n in (1, 2, 3, 50)] == [min(n, most) for n in (1, 2, 3, 50)]


def test_16_mutant_a_bound_that_is_declared_and_not_enforced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: nothing is cut."""
    monkeypatch.setattr(SortedRows, "find_first", lambda rows, group, limit=1: rows.order)
    assert rows_that_a_person_changes(50, {"person_id": "pid", "max_records": 3}) > 3


@pytest.mark.parametrize("unit", [None, {}, {"person_id": "caseid"}, {"max_records": 2}], ids=str)
def test_16_the_unit_of_protection_has_no_default(unit: Any) -> None:
    content = make_spec().model_dump(mode="json", exclude={"unit"}, exclude_none=True)
    with pytest.raises(ValidationError, match="unit"):
        ReleaseSpec.model_validate(content if unit is None else {**content, "unit": unit})
