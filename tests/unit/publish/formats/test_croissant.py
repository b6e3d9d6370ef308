"""The Croissant metadata, loaded by its own library, which then reads the rows by it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privsyn.data_contracts.release_spec import ReleaseSpec
from tests.support.described import ABOUT, CERTIFICATE, awkward, described, synthetic
from tests.support.specs import make_spec

mlcroissant = pytest.importorskip("mlcroissant", reason="install privsyn-flows[formats-check]")


def load(folder: Path) -> Any:
    return mlcroissant.Dataset(str(folder / "croissant.json"))


def plain(value: Any) -> Any:
    """What the library hands out: bytes for texts, Timestamps for dates, NaN for null in places."""
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if value is None or (not isinstance(value, str) and pd.isna(value)):
        return None
    return value.to_pydatetime() if isinstance(value, pd.Timestamp) else value


def rows(folder: Path, spec: ReleaseSpec) -> list[list[Any]]:
    return [[plain(v) for v in record.values()] for record in load(folder).records("rows")]


def expected(spec: ReleaseSpec, count: int) -> list[list[Any]]:
    def value(v: Any) -> Any:
        return pd.Timestamp(v).to_pydatetime() if hasattr(v, "year") else v

    return [[value(v) for v in row.values()] for row in synthetic(spec, count).to_pylist()]


def test_it_conforms_to_1_1_and_gives_every_row(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spec = awkward()
    described(spec, tmp_path)
    with caplog.at_level(logging.WARNING):
        dataset = load(tmp_path)
    assert dataset.metadata.ctx.issues.errors == set()
    assert dataset.metadata.ctx.issues.warnings == set()
    assert "not standard" not in caplog.text
    assert dataset.metadata.ctx.conforms_to.name == "V_1_1"
    assert rows(tmp_path, spec) == expected(spec, 200)


def test_parts_are_one_set_of_records(tmp_path: Path) -> None:
    spec = awkward()
    described(spec, tmp_path, rows=50, parts=3)
    found = rows(tmp_path, spec)
    assert sorted(found, key=repr) == sorted(expected(spec, 50), key=repr)
    listed = {f.id for f in load(tmp_path).metadata.file_objects}
    kinds = (("synthetic_csv", "csv"), ("synthetic", "parquet"))
    assert {f"{where}/part-{i:05d}.{kind}" for i in range(3) for where, kind in kinds} <= listed


def test_every_file_is_there_with_its_hash(tmp_path: Path) -> None:
    release = described(awkward(), tmp_path)
    objects = load(tmp_path).metadata.file_objects
    assert {(f.id, f.sha256, f.content_size) for f in objects} == {
        (name, file.sha256, f"{file.bytes} B") for name, file in release.files.items()
    }


def test_a_broken_description_is_refused(tmp_path: Path) -> None:
    described(awkward(), tmp_path)
    path = tmp_path / "croissant.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["recordSet"][0]["field"][0]["source"]["fileObject"]["@id"] = "absent.parquet"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(mlcroissant.ValidationError):
        load(tmp_path)


def test_types_are_the_columns_types(tmp_path: Path) -> None:
    described(awkward(), tmp_path)
    fields = json.loads((tmp_path / "croissant.json").read_text(encoding="utf-8"))["recordSet"][0]["field"]
    types = [f["dataType"] for f in fields]
    assert types == [
        *("sc:Integer", "sc:Float", "sc:Text", "sc:Text", "sc:Integer", "sc:Float"),
        *("sc:Date", "sc:DateTime", "sc:DateTime", "sc:Boolean", "sc:Float"),
    ]
    ids = [f["@id"] for f in fields]
    assert len(set(ids)) == len(ids)
    assert ids[:2] + ids[4:5] == ["rows/order", "rows/column-2", "rows/column-5"]
    assert [f["name"] for f in fields] == list(synthetic(awkward(), 2).column_names)


def test_the_promise_and_only_the_publishers_facts_are_stated(tmp_path: Path) -> None:
    described(make_spec(about=ABOUT), tmp_path / "full")
    described(make_spec(), tmp_path / "bare")
    full, bare = (json.loads((tmp_path / n / "croissant.json").read_text(encoding="utf-8")) for n in ("full", "bare"))
    promise = f"({CERTIFICATE.epsilon:g}, {CERTIFICATE.delta:g})-differential privacy"
    for found in (full, bare):
        assert found["dpv:hasTechnicalMeasure"] == {"@id": "dpv:DifferentialPrivacy"}
        assert promise in found["rai:personalSensitiveInformation"][0]
        assert {"synthetic data", "differential privacy"} <= set(found["keywords"])
    assert full["license"] == "https://spdx.org/licenses/CC-BY-4.0.html"
    assert full["datePublished"] == "2026-11-21"
    assert full["prov:wasDerivedFrom"]["@id"] == "https://stats.example.org/survey"
    assert not {"license", "datePublished", "creator", "publisher", "url"} & set(bare)
    assert load(tmp_path / "bare").metadata.ctx.issues.errors == set()


def test_integers_beyond_2_to_53_come_whole(tmp_path: Path) -> None:
    spec = make_spec({"n": {"kind": "integer", "min": 2**53 - 41, "max": 2**53 - 1}, "b": {"kind": "boolean"}})
    described(spec, tmp_path, rows=82)
    found = [r[0] for r in rows(tmp_path, spec)]
    assert np.array_equal(np.array(found), synthetic(spec, 82)["n"].to_numpy())
