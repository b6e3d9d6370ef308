"""Bug class: what a spec calls public is the private table, in another order, format or place.

It does not see a public file that has some of the private rows, or other columns than the private table: whole tables
are compared.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import privsyn
from privsyn.api.release import propose_release
from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine import checks
from privsyn.engine.admission import check_request
from privsyn.extras.itemsets.itemset_spec_file import load_itemset_spec
from privsyn.extras.itemsets.publish_itemsets import plan_itemsets, publish_itemsets
from privsyn.ledgers.ledger import Ledger
from privsyn.sources import row_digest
from privsyn.sources.row_digest import compute_rows_fingerprint
from privsyn.specs.dictionaries import parse_dictionary
from privsyn.storage.named_files import refuse_private_file
from tests.support.linked_tables import make_tables_spec, make_visits, make_visits_content, save_tables
from tests.support.releases import QUICK, run
from tests.support.specs import make_spec, with_public_inputs

pytestmark = pytest.mark.usefixtures("places")

STATEMENT = "Towns of another register, which everybody may have."
TOWNS = [f"town {i}" for i in range(40)]
COUNTIES = ["east", "north", "south", "west"]
COLUMNS: dict[str, Any] = {
    "town": {"kind": "categorical", "values": TOWNS},
    "county": {"kind": "categorical", "values": COUNTIES, "nullable": True},
    "count": {"kind": "integer", "min": 0, "max": 50, "bins": 5},
    "share": {"kind": "number", "min": 0, "max": 1, "bins": 4},
    "seen": {"kind": "datetime", "min": "2010-01-01", "max": "2020-01-01", "bins": 8},
    "caseid": {"kind": "drop"},
}
SENTENCE = r"cannot be told from a private table \(PRIVATE: pass it on to nobody; it was noted\); nothing was spent"


def table(rows: int = 40, seed: int = 3) -> pd.DataFrame:
    """A private table with one row a town, which could be taken for a table of towns."""
    rng = np.random.default_rng(seed)
    days = rng.integers(0, 3_000, rows)
    return pd.DataFrame(
        {
            "town": TOWNS[:rows],
            "county": [COUNTIES[i % 4] for i in range(rows)],
            "count": rng.integers(0, 50, rows),
            "share": rng.integers(0, 100, rows) / 100,
            "seen": [dt.datetime(2010, 1, 1) + dt.timedelta(days=int(day)) for day in days],
            "caseid": [f"case-{i}" for i in range(rows)],
        }
    )


def write(frame: pd.DataFrame, path: Path, form: str) -> Path:
    """Write the rows as somebody would who takes them for public ones; the private table is a Parquet file."""
    mixed = frame.sample(frac=1, random_state=5)
    private = path.parent / "private.parquet"
    if form == "bytes":
        path.write_bytes(private.read_bytes())
    elif form == "link":
        os.link(private, path)
    elif form == "parquet":
        mixed.drop(columns="caseid").to_parquet(path, compression="zstd")
    elif form == "named columns":
        mixed[["town", "county", "count"]].assign(more=1).to_parquet(path)
    elif form == "csv":
        path = path.with_suffix(".csv")
        mixed.to_csv(path, index=False)
    else:  # another spelling
        path = path.with_suffix(".csv")
        other = mixed.assign(seen=mixed.seen.dt.strftime("%d.%m.%Y"), share=mixed.share.map("{:.3f}".format))
        other.to_csv(path, index=False)
    return path


FORMS = ("bytes", "link", "parquet", "csv", "spelling", "named columns")


def asked(folder: Path, kind: str, public: Path, data: str = "elsewhere.parquet", **more: Any) -> ReleaseSpec:
    """A spec that calls the file public, loaded while another table stands in ``data``."""
    total = {"columns": ["town"], "table": str(public), "statement": STATEMENT}
    named: dict[str, dict[str, Any]] = {
        "prior": {"prior": {"table": str(public), "statement": STATEMENT}},
        "lookup": {"rules": [{"lookup": {"from": "town", "to": "county", "table": str(public)}}]},
        "totals": {"totals": [total]},
    }
    spec = with_public_inputs(make_spec(COLUMNS, data=data, **{**QUICK, **named[kind], **more}), folder)
    return spec.model_copy(update={"data": str(folder / "private.parquet")})


def refusal(spec: ReleaseSpec, data: Any = None) -> str:
    """What the gate says; empty: nothing."""
    try:
        check_request(propose_release(spec, Settings(), data=data))
    except RequestError as error:
        assert error.field.split("[")[0].split(".")[0] in ("prior", "rules", "totals")
        return error.paragraph()
    return ""


def record() -> dict[str, Any]:
    path = Settings().private_root / "records" / "people" / "public-inputs.json"
    content: dict[str, Any] = json.loads(path.read_text())
    return content


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    table().to_parquet(tmp_path / "private.parquet", index=False)
    return tmp_path


COPIES = [(kind, form) for kind in ("prior", "lookup", "totals") for form in FORMS]
COPIES.remove(("prior", "named columns"))  # a prior has all measured columns


FAST = {
    *(("prior", "bytes"), ("prior", "csv"), ("lookup", "link"), ("lookup", "spelling")),
    *(("totals", "parquet"), ("totals", "named columns")),
}
"""Each form once, and two of each kind."""


@pytest.mark.parametrize(
    ("kind", "form"), [c if c in FAST else pytest.param(*c, marks=pytest.mark.slow) for c in COPIES]
)
def test_28_the_private_table_is_no_public_one(folder: Path, kind: str, form: str) -> None:
    spec = asked(folder, kind, write(table(), folder / "public.parquet", form))
    said = refusal(spec)
    assert re.search(SENTENCE, said) and "town" not in said
    (folder / "private.parquet").unlink()
    assert refusal(spec, table()) == said
    assert Ledger(Settings().ledger).summary() == []
    assert len(record()["refused"]) == 1


@pytest.mark.parametrize("kind", ["prior", "lookup", "totals"])
def test_28_a_release_is_refused_before_it_spends_or_publishes(folder: Path, kind: str) -> None:
    spec = asked(folder, kind, write(table(), folder / "public.parquet", "csv"))
    with pytest.raises(RequestError, match=SENTENCE):
        run(spec)
    assert Ledger(Settings().ledger).summary() == [] and not list(Settings().released_root.glob("*"))


@pytest.mark.parametrize("kind", ["prior", "lookup", "totals"])
def test_28_tables_that_share_rows_are_taken(folder: Path, kind: str) -> None:
    """To refuse them would tell who is in the private one: nothing is computed of rows that both have."""
    for rows in (table().iloc[1:], table().assign(seen=table().seen.shift(1, fill_value=dt.datetime(2011, 1, 1)))):
        rows.to_parquet(folder / "public.parquet", index=False)
        assert refusal(asked(folder, kind, folder / "public.parquet")) == ""
    assert len(record()["compared"]) == 2 and record()["refused"] == {}
    assert all(len(digest) == 64 for digest in record()["compared"]) and "town" not in json.dumps(record())


def test_28_a_lookup_of_the_towns_of_the_table_is_taken_and_changes_no_key(folder: Path) -> None:
    """Its rows are those that the private table has of two columns, each once: so are those of a true list of towns."""
    towns = pd.concat([table(), table().assign(caseid="again")])
    towns.to_parquet(folder / "private.parquet", index=False)
    towns[["town", "county"]].drop_duplicates().to_csv(folder / "towns.csv", index=False)
    spec = asked(folder, "lookup", folder / "towns.csv")
    assert refusal(spec) == "" and [f.field for f in spec.public_inputs] == ["rules[0].lookup.table"]
    made = run(spec)
    listed = make_spec(COLUMNS, data=spec.data, **QUICK, rules=spec.model_dump(mode="json")["rules"])
    assert run(listed).drawn == () and listed.public() == spec.public()
    shown = "".join(p.read_text(errors="replace") for p in Path(made.released).rglob("*.json"))
    assert str(folder) not in shown and "towns.csv" not in shown
    (folder / "towns.csv").unlink()  # its rows are in the request
    assert run(spec).drawn == ()


@pytest.mark.parametrize("form", ["bytes", "link", "lines"])
def test_28_the_private_transactions_are_no_list_of_items(tmp_path: Path, form: str) -> None:
    lines = ["basket", "bread", "milk", "tea", "wine"]
    data, items = tmp_path / "baskets.csv", tmp_path / "items.txt"
    data.write_text("\n".join(lines) + "\n")
    if form == "link":
        os.link(data, items)
    else:
        items.write_text("\n".join(lines if form == "bytes" else lines[::-1]) + "\n")
    content = {
        "dataset": "baskets", "data": "none.csv", "layout": {"kind": "list", "column": "basket"},
        "items_file": "items.txt", "transactions_per_person": 1, "max_items": 2, "top": 3,
        "privacy": {"epsilon": 1, "delta": 1e-9}, "budget": {"epsilon": 9, "delta": 1e-8},
    }  # fmt: skip
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(content))
    spec = load_itemset_spec(tmp_path / "spec.yaml").model_copy(update={"data": str(data)})
    with pytest.raises(RequestError, match=SENTENCE) as caught:
        publish_itemsets(spec, Settings())
    assert caught.value.field == "items_file"
    with pytest.raises(RequestError, match=r"is the private table itself|cannot be told"):
        publish_itemsets(load_itemset_spec(tmp_path / "spec.yaml", data=data), Settings())
    assert Ledger(Settings().ledger).summary() == []
    assert "public_files" not in json.dumps(plan_itemsets(spec).asks) and "items.txt" not in str(spec.public())


def test_28_the_policy_says_where_items_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "baskets.csv").write_text("basket\nbread;milk\ntea\n")
    (tmp_path / "items.txt").write_text("bread\nmilk\ntea\n")
    content = {
        "dataset": "baskets", "data": "baskets.csv", "layout": {"kind": "list", "column": "basket"},
        "items_file": "items.txt", "transactions_per_person": 1, "max_items": 2, "top": 3,
        "privacy": {"epsilon": 1, "delta": 1e-9}, "budget": {"epsilon": 9, "delta": 1e-8},
    }  # fmt: skip
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(content))
    rules = {
        "paths": ["baskets.csv"],
        "budget": content["budget"],
        "epsilon": 1,
        "delta": 1e-9,
        "outputs": ["itemsets"],
    }
    monkeypatch.setenv("PRIVSYN_POLICY", str(tmp_path / "policy.yaml"))
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump({"datasets": {"baskets": rules}}))
    with pytest.raises(RequestError, match=r"datasets\.baskets\.public") as caught:
        publish_itemsets(load_itemset_spec(tmp_path / "spec.yaml"), Settings())
    assert caught.value.field == "items_file"
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump({"datasets": {"baskets": {**rules, "public": ["items.txt"]}}}))
    made = publish_itemsets(load_itemset_spec(tmp_path / "spec.yaml"), Settings())
    assert not any("items.txt" in path.read_text() for path in Path(made.released).glob("*.json"))


def test_28_three_answers_are_given_and_then_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who knows all rows but one could guess it by trying: answers are few, noted, and the same for every cause."""
    taken = asked(folder, "lookup", write(table().iloc[:9], folder / "some.parquet", "parquet"))
    assert refusal(taken) == ""
    said = set()
    for name, form in (("a", "bytes"), ("b", "csv"), ("c", "parquet")):
        spec = asked(folder, "totals", write(table(), folder / f"{name}.parquet", form))
        said |= {refusal(spec), refusal(spec)}
    assert len(said) == 1
    noted = record()["refused"].values()
    assert [(one["field"], one["times"]) for one in noted] == [("totals[0].table", 2)] * 3
    compared = len(record()["compared"])
    with monkeypatch.context() as patch:
        patch.setattr(checks, "_has_equal_rows", lambda *a: pytest.fail("it was compared"))
        for rows in (table().iloc[1:], table().iloc[2:]):
            said = {refusal(asked(folder, "prior", write(rows, folder / "d.parquet", "csv")))}
            assert "no more of them are compared" in said.pop()
    assert len(record()["compared"]) == compared
    assert refusal(taken) == ""  # what passed before is no new question
    (Settings().private_root / "records" / "people" / "public-inputs.json").unlink()  # the operator allows more
    assert "cannot be told from" in refusal(spec)


def test_28_guesses_are_few_also_where_they_miss(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "MOST_COMPARED", 2)
    for rows, taken in ((5, True), (6, True), (7, False), (5, True)):
        said = refusal(asked(folder, "lookup", write(table(rows), folder / "guess.parquet", "csv")))
        assert (said == "") == taken and (taken or "no more of them are compared" in said)


PLACES: dict[str, Callable[[Path, ReleaseSpec], object]] = {
    "release": lambda folder, spec: privsyn.release(None, spec),
    "check_spec": lambda folder, spec: privsyn.check_spec(spec),
    "compare": lambda folder, spec: privsyn.compare(spec),
}


@pytest.mark.parametrize("call", PLACES)
@pytest.mark.parametrize("kind", ["prior", "lookup", "totals"])
def test_28_the_policy_says_where_public_files_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str, call: str
) -> None:
    public = write(table(30), folder / "public.parquet", "csv")
    spec = asked(folder, kind, public)
    rules = {"paths": [str(folder)], "budget": {"epsilon": 50, "delta": 1e-6}, "epsilon": 50, "delta": 1e-6}
    monkeypatch.setenv("PRIVSYN_POLICY", str(folder / "policy.yaml"))
    (folder / "policy.yaml").write_text(yaml.safe_dump({"datasets": {"people": rules}}))
    with pytest.raises(RequestError, match=r"is not among the policy's datasets\.people\.public") as caught:
        PLACES[call](folder, spec)
    assert caught.value.field == spec.public_inputs[0].field
    (folder / "policy.yaml").write_text(yaml.safe_dump({"datasets": {"people": {**rules, "public": ["public.csv"]}}}))
    assert privsyn.check_spec(spec).columns


def test_28_a_check_opens_no_table_outside_the_policy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = {"paths": ["tables"], "budget": {"epsilon": 50, "delta": 1e-6}, "epsilon": 50, "delta": 1e-6}
    (folder / "policy.yaml").write_text(yaml.safe_dump({"datasets": {"people": rules}}))
    monkeypatch.setenv("PRIVSYN_POLICY", str(folder / "policy.yaml"))
    with pytest.raises(RequestError, match=r"datasets\.people\.paths"):
        privsyn.check_spec(make_spec(COLUMNS), folder / "private.parquet")
    with pytest.raises(RequestError, match=r"datasets\.people\.in_memory"):
        privsyn.check_spec(make_spec(COLUMNS), table())


def test_28_a_dictionary_is_not_the_private_table(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privsyn.specs.draft.read_dictionary", parse_dictionary)  # here, not in another process
    private = folder / "people.csv"
    table().rename(columns={"town": "name"}).to_csv(private, index=False)
    os.link(private, folder / "linked.csv")
    table().rename(columns={"town": "name"}).sample(frac=1).to_csv(folder / "copy.csv", index=False)
    for name, words in (("people", "private table itself"), ("linked", "table itself"), ("copy", "has the columns of")):
        with pytest.raises(RequestError, match=words) as caught:
            privsyn.draft_spec(private, dictionary=folder / f"{name}.csv")
        assert caught.value.field == "draft_spec.dictionary"
    (folder / "words.csv").write_text("name,description\ncounty,where it lies\n")
    rules = {"budget": {"epsilon": 50, "delta": 1e-6}, "epsilon": 50, "delta": 1e-6}
    monkeypatch.setenv("PRIVSYN_POLICY", str(folder / "policy.yaml"))
    for public, allowed in (([], False), (["words.csv"], True)):
        (folder / "policy.yaml").write_text(yaml.safe_dump({"datasets": {"people": {**rules, "public": public}}}))
        if allowed:
            assert privsyn.draft_spec(private, dictionary=folder / "words.csv")["dataset"] == "people"
        else:
            with pytest.raises(RequestError, match=r"datasets\.people\.public"):
                privsyn.draft_spec(private, dictionary=folder / "words.csv")


def fingerprint(columns: dict[str, Any], *moments: str) -> Any:
    return compute_rows_fingerprint(pa.table(columns).to_batches(), sorted(columns), moments)


def test_28_numbers_that_differ_have_other_fingerprints() -> None:
    big = 2**53
    assert fingerprint({"a": [big, 1]}) != fingerprint({"a": [big + 1, 1]})
    assert fingerprint({"a": [str(big + 1)]}) == fingerprint({"a": [big + 1]})
    assert fingerprint({"a": ["9" * 900]}) != fingerprint({"a": ["9" * 899 + "8"]})
    assert fingerprint({"a": [0.25]}) != fingerprint({"a": [0.26]})
    assert (
        fingerprint({"a": pa.array([0.1], pa.float32())}) == fingerprint({"a": ["0.10"]}) == fingerprint({"a": [0.1]})
    )
    assert fingerprint({"a": [1.0, None]}) == fingerprint({"a": ["1", ""]}) == fingerprint({"a": [True, None]})
    assert fingerprint({"a": pa.array(["1", None]).dictionary_encode()}) == fingerprint({"a": ["1", ""]})


@pytest.mark.parametrize(
    "spelled",
    [
        "2014-03-09", "09/03/2014", "3/9/14", "9.3.2014", "9 Mar 2014", "March 9, 2014", "Sun, 09 Mar 2014", "20140309",
        "2014-03-09T00:00:00", "2014-03-09 00:00:00.000Z",
    ],
)  # fmt: skip
def test_28_a_date_is_one_in_every_spelling(spelled: str) -> None:
    stored = fingerprint({"seen": [dt.date(2014, 3, 9)], "n": [1]}, "seen")
    assert fingerprint({"seen": [spelled], "n": ["1"]}, "seen") == stored
    assert fingerprint({"seen": ["2014-03-10"], "n": [1]}, "seen") != stored
    at = fingerprint({"seen": [dt.datetime(2014, 3, 9, 14, 5)], "n": [1]}, "seen")
    assert fingerprint({"seen": ["9.3.2014 2:05 PM"], "n": [1]}, "seen") == at != stored


def test_28_mutant_a_gate_that_compares_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: the file's hash alone, as lookups and totals had less than that: a copy as CSV is published."""
    monkeypatch.setattr(checks, "_has_equal_rows", lambda *a: False)
    assert refusal(asked(folder, "lookup", write(table(), folder / "public.parquet", "csv"))) == ""


def test_28_mutant_a_gate_that_looks_for_shared_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: one row in common is enough, which tells of a guessed row whether it is in the table."""

    def share_rows(path: Path, spec: ReleaseSpec, source: Any) -> bool:
        theirs = set(pq.read_table(path)["town"].to_pylist())
        return any(theirs & set(batch.column("town").to_pylist()) for batch in source.batches())

    monkeypatch.setattr(checks, "_has_equal_rows", share_rows)
    table(9).to_parquet(folder / "public.parquet", index=False)
    assert "cannot be told from" in refusal(asked(folder, "lookup", folder / "public.parquet"))


def test_28_mutant_numbers_as_floats_and_dates_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: the canonical form of before."""

    def as_before(values: pa.Array, *, moment: bool) -> list[str]:
        def one(text: str) -> str:
            try:
                return repr(float(text))
            except ValueError:
                return text

        return [one(str(value)) for value in values.to_pylist()]

    monkeypatch.setattr(row_digest, "_format_cells", as_before)
    with pytest.raises(AssertionError):
        test_28_numbers_that_differ_have_other_fingerprints()
    with pytest.raises(AssertionError):
        test_28_a_date_is_one_in_every_spelling("09/03/2014")


def test_28_mutant_answers_that_are_not_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: nothing is noted, so that any number of guesses is answered."""
    monkeypatch.setattr(checks, "_note_refusal", lambda *a: None)
    with pytest.raises(AssertionError):
        test_28_three_answers_are_given_and_then_none(folder, monkeypatch)


def test_28_a_url_is_called_one_and_what_follows_it_is_not_shown(folder: Path) -> None:
    stated: dict[str, dict[str, Any]] = {
        "prior.table": {"prior": {"table": "https://me:secret@host/a.csv", "statement": STATEMENT}},
        "rules[0].lookup.table": {
            "rules": [{"lookup": {"from": "town", "to": "county", "table": "s3://secret/a.csv"}}]
        },
    }
    for field, named in stated.items():
        with pytest.raises(RequestError, match="URLs are not read") as caught:
            with_public_inputs(make_spec(COLUMNS, **QUICK, **named), folder)
        assert caught.value.field == field and "secret" not in str(caught.value)
    with pytest.raises(RequestError, match="URLs are not read") as caught:
        privsyn.draft_spec(folder / "private.parquet", dictionary="s3://secret/a.csv")
    assert caught.value.field == "draft_spec.dictionary" and "secret" not in str(caught.value)


def test_28_a_place_is_the_private_one_however_it_is_named(folder: Path) -> None:
    private = folder / "private.parquet"
    (folder / "soft.parquet").symlink_to(private)
    os.link(private, folder / "hard.parquet")
    for name in ("private.parquet", "soft.parquet", "hard.parquet"):
        with pytest.raises(RequestError, match="is the private table itself"):
            refuse_private_file(folder / name, (str(private),), "prior.table")
        with pytest.raises(RequestError, match="is the private table itself"):
            refuse_private_file(folder / name, (str(folder),), "prior.table")
    refuse_private_file(folder / "none.parquet", (str(private),), "prior.table")


@pytest.mark.parametrize("named", ["persons.parquet", "visits.parquet"])
def test_28_neither_of_two_tables_is_a_public_one(tmp_path: Path, named: str) -> None:
    content = save_tables(tmp_path, make_visits(30), make_visits_content())
    (place,) = (table["data"] for table in content.values() if Path(table["data"]).name == named)
    rules = [{"lookup": {"from": ["sex"], "to": ["job"], "table": place}}]
    with pytest.raises(RequestError, match="is the private table itself") as caught:
        with_public_inputs(make_tables_spec(content, rules=rules), tmp_path)
    assert caught.value.field == "rules[0].lookup.table"
