"""Releases with a column that is not measured: what they hold, and that everybody is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import privsyn
from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.public_counts import Prior
from privsyn.ledgers.ledger import Ledger
from privsyn.publish.formats.tables import TELLS_NOTHING
from tests.support import answered
from tests.support.documented import read_example
from tests.support.releases import FEW, QUICK, run
from tests.support.specs import COLUMNS, make_spec, mechanism_fields, people, with_public_inputs

pytestmark = pytest.mark.usefixtures("places")

Save = Callable[..., str]
NOT_KNOWN = (
    r"not known: the column '(street|opened)' was not measured: its values were drawn at random and tell nothing"
)
MEASURED = ("borough", "calls")


def example() -> dict[str, Any]:
    return dict(read_example("docs/columns.md", number=2)["columns"])


def fires(rows: int) -> pa.Table:
    """All in one street, opened on one day."""
    rng = np.random.default_rng(0)
    borough = rng.choice(["Bronx", "Kings", "Queens"], rows)
    calls = np.where(borough == "Bronx", 1, rng.integers(0, 10, rows))
    day = pa.array(["2021-02-03"] * rows)
    return pa.table({"street": ["Elm St"] * rows, "opened": day, "borough": borough, "calls": calls})


def test_the_example_of_the_docs_is_released_and_says_what_tells_nothing(save: Save) -> None:
    columns, data = example(), save(fires(400))
    spec = make_spec(columns, data=data, **QUICK)
    made = run(spec)
    released = privsyn.open_release(made.released)
    streets = pc.value_counts(released.table["street"]).to_pylist()
    assert {row["values"] for row in streets} == set(columns["street"]["values"])
    assert max(row["counts"] for row in streets) < 0.5 * made.rows
    assert 0 < released.table["opened"].null_count < 0.1 * made.rows

    folder = Path(made.released)
    note = (folder / "README.md").read_text(encoding="utf-8")
    assert "## Columns that were not measured\n\n**These columns tell nothing of the private table**" in note
    assert "| street | **not measured** |" in note and "- street\n- opened\n" in note
    certificate = json.loads((folder / "certificate.json").read_text(encoding="utf-8"))
    assert certificate["not_measured"]["columns"] == ["street", "opened"]
    assert {n for s in certificate["stages"] for g in s["groups"] for q in g["attributes"] for n in q} == set(MEASURED)
    package = json.loads((folder / "datapackage.json").read_text(encoding="utf-8"))
    fields = next(r["schema"]["fields"] for r in package["resources"] if "schema" in r)
    assert [f["name"] for f in fields if f.get("description") == TELLS_NOTHING] == ["street", "opened"]
    croissant = json.loads((folder / "croissant.json").read_text(encoding="utf-8"))
    told = [f["name"] for f in croissant["recordSet"][0]["field"] if f.get("description") == TELLS_NOTHING]
    assert told == ["street", "opened"]
    assert "Not looked at, and drawn at random" in (folder / "registry.yaml").read_text(encoding="utf-8")
    assert privsyn.rerun(made.run).agrees

    paid = Ledger(Settings().ledger).summary()[0].rho
    more = {**columns["street"], "values": ["Ash Rd", "Bay St"]}
    again = run(make_spec({**columns, "street": more}, data=data, **QUICK))
    assert Ledger(Settings().ledger).summary()[0].rho == paid and again.run != made.run
    better = privsyn.improve(again.run, epsilon=0.5)
    assert set(better.table["street"].unique().to_pylist()) == {"Ash Rd", "Bay St"}


def test_no_question_about_such_a_column_is_answered(save: Save) -> None:
    released = privsyn.open_release(run(make_spec(example(), data=save(fires(300)), **QUICK)).released)
    questions: list[Callable[[], Any]] = [
        lambda: released.count("street"),
        lambda: released.count("calls", where="opened < '2022-01-01'"),
        lambda: released.count(where="street == 'Elm St' and calls > 2"),
        lambda: released.share("street"),
        lambda: released.share("street == 'Elm St'"),
        lambda: released.share("calls > 2", by="street"),
        lambda: released.mean("opened"),
        lambda: released.mean("calls", by=["borough", "street"]),
        lambda: released.quantile("opened"),
        lambda: released.correlation("opened", "calls"),
        lambda: released.regress("calls ~ borough + street"),
        lambda: released.regress("opened ~ calls"),
        lambda: released.estimate(len, ["calls", "street"]),
    ]
    for ask in questions:
        with pytest.raises(RequestError, match=NOT_KNOWN):
            ask()
    assert float(released.count()["estimate"].iloc[0]) > 0
    assert len(released.correlation()) == 0 and len(released.mean("calls", by="borough")) == 3


@pytest.mark.slow
def test_an_evaluation_leaves_it_out_and_says_so(save: Save, tmp_path: Path) -> None:
    made = run(make_spec(example(), data=save(fires(300)), **QUICK))
    found = privsyn.evaluate(made.run, against=[save(fires(50).drop_columns(["street", "opened"]), "other.parquet")])
    assert [c.column for c in found.evaluation.one_ways] == list(MEASURED)
    assert [(p.a, p.b) for p in found.evaluation.pairs] == [MEASURED]
    said = "Not compared, since they were not measured and are drawn at random: street, opened."
    assert said in found.evaluation.notes and said in found.html.read_text(encoding="utf-8")
    settings = tmp_path / "settings.yaml"
    for field, content in (
        ("labels", "[street]"),
        ("mgd", "{bins_of_bins: {opened: [2]}}"),
        ("analyses", "[{kind: share, of: calls > 2, by: [street]}]"),
    ):
        settings.write_text(f"{field}: {content}", encoding="utf-8")
        with pytest.raises(RequestError, match="was not measured") as caught:
            privsyn.evaluate(made.run, settings=settings)
        assert str(caught.value).startswith(field)
    with pytest.raises(RequestError, match="the column 'street' is not measured"):
        privsyn.compare(make_spec(example(), data=save(fires(30))), labels=["street"])


def test_spec_check_says_so_before_anything_is_spent(save: Save) -> None:
    spec = make_spec(example(), data=save(fires(50)))
    report = privsyn.check_spec(spec, spec.data)
    kinds = {c.column: c.kind for c in report.columns}
    assert kinds["street"] == "categorical, not measured" and kinds["calls"] == "integer"
    assert any(w.startswith("columns.street is not measured: it costs no budget") for w in report.warnings)
    assert report.fit is not None and [c.column for c in report.fit.columns] == list(MEASURED)
    found = privsyn.forecast(spec, 300, epsilons=[1.0], seeds=1)
    assert [c.column for c in found.at[0].columns] == list(MEASURED)
    assert found.words[-1].endswith("say nothing about the private table at any epsilon: street, opened.")
    assert found.as_json()["unmeasured"] == ("street", "opened")


def test_the_other_columns_are_those_of_a_release_that_drops_it() -> None:
    columns = {**answered.COLUMNS, "income": {**answered.COLUMNS["income"], "measured": False}}
    dropped = {**columns, "income": {"kind": "drop"}}
    rows = answered.table(500)
    tables = [
        answered.released(rows.select([n for n in rows.column_names if n in asked.released_columns]), asked, 1).table
        for asked in (make_spec(columns, **QUICK), make_spec(dropped, **QUICK))
    ]
    assert tables[0].drop_columns(["income"]).equals(tables[1])


@pytest.mark.parametrize("name", ["adaptive", "independent", "mst", "privbayes", "aim"])
def test_every_mechanism_draws_it(name: str) -> None:
    columns = {**answered.COLUMNS, "region": {**answered.COLUMNS["region"], "measured": False}}
    asked = make_spec(columns, **mechanism_fields(name))
    found = answered.released(answered.table(200), asked, 1)
    assert set(found.table["region"].unique().to_pylist()) == {"north", "south", "east"}
    assert found.domain.attributes == ("age", "income", "happy")


@pytest.mark.parametrize("name", ["privsyn", "prior"])
def test_a_public_prior_need_not_have_it(name: str, save: Save, tmp_path: Path) -> None:
    pq.write_table(people(150, 5).select(["age", "happy"]), tmp_path / "last_year.parquet")
    columns = {**FEW, "region": {**COLUMNS["region"], "measured": False}, "happy": COLUMNS["happy"]}
    prior = {"table": "last_year.parquet", "statement": "Rows that anybody may have."}
    fields = {**mechanism_fields(name, group="happy"), "prior": prior}
    made = run(with_public_inputs(make_spec(columns, data=save(people(200)), **fields), tmp_path))
    assert set(privsyn.open_release(made.released).table["region"].unique().to_pylist()) == {"north", "south", "east"}


def test_a_release_is_no_prior_of_what_it_did_not_measure(save: Save, tmp_path: Path) -> None:
    columns, data = example(), save(fires(200))
    earlier = run(make_spec(columns, data=data, **QUICK)).released
    prior = {"release": earlier, "statement": "The first release of this office."}
    street = {**columns["street"], "measured": True}
    asked = make_spec({**columns, "street": street}, data=data, **QUICK)
    said = "did not measure the column 'street': its values there are random"
    with pytest.raises(RequestError, match=said):
        run(with_public_inputs(asked.model_copy(update={"prior": Prior.model_validate(prior)}), tmp_path))
    with pytest.raises(RequestError, match=said):
        privsyn.forecast(asked, 200, earlier=earlier, seeds=1)
    assert run(with_public_inputs(make_spec(columns, data=data, prior=prior, **QUICK), tmp_path)).rows


def test_rules_of_other_columns_hold_beside_it(save: Save) -> None:
    columns = {**example(), "busy": {"kind": "boolean"}}
    rules = [{"derive": {"busy": "calls > 4"}}, {"never": "borough == 'Bronx' and calls > 2"}]
    data = save(fires(300).append_column("busy", pa.array([False] * 300)))
    released = privsyn.open_release(run(make_spec(columns, data=data, rules=rules, **QUICK)).released)
    with pytest.raises(RequestError, match=NOT_KNOWN):
        released.mean("calls", by=["busy", "street"])
    table = released.table
    assert table["busy"].equals(pc.greater(table["calls"], 4))
    assert not pc.any(
        pc.and_(pc.equal(table["borough"].cast(pa.string()), "Bronx"), pc.greater(table["calls"], 2))
    ).as_py()
    assert len(table["street"].unique()) == 4
