"""A release with known totals: rows that have them, what it says of them, which steps they change, what is refused."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import privsyn
from privsyn.api.check import check
from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.improved_run import build_improved_spec
from privsyn.evaluation.forecasts.forecast import forecast
from privsyn.publish.certificate_of_run import TOTALS_PROMISE
from tests.support.releases import few, run, spent
from tests.support.specs import COLUMNS, make_spec, people, with_public_inputs

pytestmark = pytest.mark.usefixtures("places")

Save = Callable[..., str]
STATEMENT = "Residents by region, published by the office on 2026-01-01."
COUNTS = [
    {"region": "north", "count": 160}, {"region": "south", "count": 79}, {"region": "other", "count": 61}
]  # fmt: skip
BY_REGION = {"columns": ["region"], "counts": COUNTS, "statement": STATEMENT}
THREE = {name: COLUMNS[name] if name in ("age", "region", "happy") else {"kind": "drop"} for name in COLUMNS}


def counted(folder: str | Path, *columns: str) -> dict[Any, int]:
    table = privsyn.open_release(folder).table
    return dict(Counter(zip(*(table[name].to_pylist() for name in columns), strict=True)))


def test_a_release_has_its_totals_exactly_and_states_them(save: Save) -> None:
    data = save(people(300))
    plain = run(few(data))
    paid = spent()
    made = run(few(data, totals=[BY_REGION]))
    assert paid < spent() <= 2 * paid
    assert counted(made.released, "region") == {("north",): 160, ("south",): 79, ("other",): 61}
    folder = Path(made.released)
    certificate = json.loads((folder / "certificate.json").read_text())
    assert certificate["totals"] == {
        "stated": [{"columns": ["region"], "rows": 300, "statement": STATEMENT, "hold": "exact"}],
        "promise": TOTALS_PROMISE,
    }
    assert "totals" not in json.loads((Path(plain.released) / "certificate.json").read_text())
    note = (folder / "README.md").read_text()
    assert STATEMENT in note and TOTALS_PROMISE in note and "The number of rows comes from the known totals" in note
    alone = pq.read_table(folder / "marginals" / "one_way_receipts.parquet")
    assert alone["attributes"].to_pylist() == [["age"]]  # the region's share of the budget is the age's
    before = pq.read_table(Path(plain.released) / "marginals" / "one_way_receipts.parquet").to_pylist()
    assert alone["sigma"][0].as_py() < before[0]["sigma"]
    answer = privsyn.open_release(folder).count("region")
    assert [round(n) for n in answer.estimate][:2] == [160, 79] and answer.std_error.max() < 0.1


def test_the_counts_may_come_from_a_file_and_only_their_content_counts(save: Save, tmp_path: Path) -> None:
    data = save(people(300))
    (tmp_path / "residents.csv").write_text("region,people,area\nnorth,160,2\nsouth,79,3\nother,61,9\n")
    stated = {"columns": ["region"], "table": "residents.csv", "count": "people", "statement": STATEMENT}
    spec = with_public_inputs(few(data, totals=[stated]), tmp_path)
    made = run(spec)
    assert counted(made.released, "region") == {("north",): 160, ("south",): 79, ("other",): 61}
    assert spec.totals[0].sha256 in (Path(made.released) / "README.md").read_text()
    assert spec.totals[0].sha256 in (Path(made.released) / "certificate.json").read_text()
    pq.write_table(pa.table({"region": ["other", "south", "north"], "count": [61, 79, 160]}), tmp_path / "r.parquet")
    other = with_public_inputs(
        few(data, totals=[{"columns": ["region"], "table": "r.parquet", "statement": STATEMENT}]), tmp_path
    )
    assert run(other).drawn == ()
    with pytest.raises(RequestError, match="names a file, and a run takes none") as caught:
        run(few(data, totals=[stated]))
    assert str(caught.value.field) == "totals[0].table"


@pytest.mark.parametrize(
    ("content", "more", "words"),
    [
        ("region,people\nnorth,1\n", {}, "has no column 'count'"),
        ("region,count\nnorth,1.5\n", {}, "line 2, has no count"),
        (f"region,count\nnorth,{'9' * 5_000}\n", {}, "line 2, has no count"),
        ("region,count\nwest,1\n", {}, "'west' is not a value of the column 'region'"),
        ("region,count\nnorth,1\nnorth,2\n", {}, "names region = 'north' twice"),
        ("region,count\n", {}, "has 0 rows, and a total has from 1 to 20,000"),
        ("region,count\nnorth,1\n", {"sha256": "0" * 64}, "has another content than its `sha256` says"),
        ("region,count\nnorth,1\n", {"table": "absent.csv"}, "absent.csv does not exist, or is not a file"),
        ("region,count\nnorth,1\n", {"table": "absent.parquet"}, "absent.parquet does not exist, or is not a file"),
        ("region,count\nnorth,1\n", {"table": "people.parquet"}, "is the private table itself"),
    ],
)
def test_a_file_that_is_no_total_is_refused_in_a_sentence(
    save: Save, tmp_path: Path, content: str, more: dict[str, Any], words: str
) -> None:
    (tmp_path / "t.csv").write_text(content)
    stated = {"columns": ["region"], "table": "t.csv", "statement": STATEMENT, **more}
    spec = few(save(people(20)), totals=[stated])
    place = Path(spec.data).parent if "people" in str(more) else tmp_path
    with pytest.raises(RequestError, match=words) as caught:
        with_public_inputs(spec, place)
    assert str(caught.value.field).startswith("totals[0]")


def test_totals_of_a_pair_and_of_all_rows_are_held_in_shards_with_rules(save: Save) -> None:
    pair = [("north", True, 200), ("south", True, 31), ("south", False, 44), ("other", False, 25)]
    counts = [{"region": r, "happy": h, "n": n} for r, h, n in pair]
    totals = [
        {"columns": ["happy", "region"], "count": "n", "counts": counts, "statement": STATEMENT},
        {"rows": 300, "statement": STATEMENT},
    ]
    rules = [{"never": "region == 'north' and age < 40"}, {"never": "not happy and age > 80"}]
    asked = make_spec(
        THREE, data=save(people(300)), totals=totals, rules=rules, synthesis={"sweeps": 2, "shard_rows": 70}
    )
    made = run(asked)
    assert counted(made.released, "region", "happy") == {(r, h): n for r, h, n in pair}
    table = privsyn.open_release(made.released).table.to_pylist()
    assert not any(row["age"] is not None and row["region"] == "north" and row["age"] < 40 for row in table)
    scores = pq.read_table(Path(made.released) / "marginals" / "scores_receipts.parquet")["attributes"].to_pylist()
    assert scores == [["age", "region"], ["age", "happy"]]


def test_totals_that_rules_leave_no_rows_for_are_refused_before_anything_is_spent(save: Save) -> None:
    spec = few(
        save(people(50)), totals=[BY_REGION], rules=[{"never": "region == 'north' and (age < 90 or age is null)"}]
    )
    with pytest.raises(RequestError, match="give rows to region = north, but no such row was found"):
        run(spec)
    both = [BY_REGION, {"columns": ["happy"], "counts": [{"happy": True, "count": 300}], "statement": STATEMENT}]
    asked = make_spec(THREE, data=save(people(50)), totals=both, rules=[{"never": "region == 'north' and not happy"}])
    with pytest.raises(RequestError, match="are exact for 'region' and 'happy', which rules also use"):
        run(asked)
    close = [both[0], {**both[1], "hold": "close"}]
    made = run(ReleaseSpec.model_validate({**asked.model_dump(exclude_unset=True), "totals": close}))
    assert counted(made.released, "region") == {("north",): 160, ("south",): 79, ("other",): 61}


@pytest.mark.slow
def test_a_release_with_totals_is_improved_and_forecast(save: Save) -> None:
    spec = few(save(people(300)), totals=[BY_REGION])
    first = run(spec)
    better = run(build_improved_spec(first.run, Settings(), 0.5))
    assert counted(better.released, "region") == {("north",): 160, ("south",): 79, ("other",): 61}
    again = pq.read_table(Path(better.released) / "marginals" / "one_way_2_receipts.parquet")
    assert again["attributes"].to_pylist() == [["age"]]
    plain = forecast(few(spec.data), 300, epsilons=[], seeds=1)
    assert forecast(spec, 300, epsilons=[], seeds=1).at == plain.at  # totals are left out: the made-up rows have others


def test_the_example_of_the_docs_is_released(save: Save, tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "totals.md").read_text()
    example = yaml.safe_load(text.split("<!-- example -->\n```yaml\n")[1].split("```")[0])
    stated = next(total for total in example["totals"] if "table" in total)
    (tmp_path / stated["table"]).write_text(text.split("```text\n")[1].split("```")[0])
    spec = with_public_inputs(make_spec(THREE, data=save(people(300)), synthesis={"sweeps": 2}, **example), tmp_path)
    assert any(warning.startswith("totals: counts of 300 rows") for warning in check(spec).warnings)
    made = run(spec)
    assert counted(made.released, "region") == {("north",): 160, ("south",): 79, ("other",): 61}
