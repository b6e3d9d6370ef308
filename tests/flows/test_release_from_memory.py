"""A release of a table in memory: the same run as from files, and nothing of where the table was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from privsyn.api.release import propose_release
from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.admission import check_request
from privsyn.evaluation.coded_tables import open_release
from privsyn.publish.folder import ReleaseSummary
from privsyn.sources.private_table import Source
from privsyn.tasks.codecs.encode_rows import Repairs
from tests.support.releases import few, release_in_process, spent
from tests.support.specs import people

pytestmark = pytest.mark.usefixtures("places")


def release(spec: ReleaseSpec, data: Any) -> ReleaseSummary:
    return release_in_process(spec, Settings(), data=data)


def test_a_table_in_memory_is_released_once_however_it_is_held(save: Any) -> None:
    table, spec = people(300), few("nowhere.parquet")
    check_request(propose_release(spec, Settings(), data=table))
    first = release(spec, table)
    paid = spent()
    assert paid > 0 and len(first.drawn) == 3
    chunks = pa.concat_tables([table.slice(0, 7), table.slice(7)])
    other_ids = table.set_column(5, "caseid", table["age"])  # dropped, so it has no part in the fingerprint
    for equal in (table, chunks, table.to_pandas(types_mapper=pd.ArrowDtype), pl.DataFrame(table), other_ids):
        assert release(spec, equal).drawn == () and spent() == paid
    assert len(release(spec, table.slice(1)).drawn) == 3 and spent() == 2 * paid
    assert len(release(few(save(table)), None).drawn) == 3  # the same rows in a file are another source


def test_what_the_private_note_says_and_what_an_evaluation_is_told() -> None:
    summary = release(few("another table.parquet"), people(300))
    note = json.loads((Path(summary.private) / "run.json").read_text())
    assert note["files"] == ["a table in memory"] and note["data"] == ""
    with pytest.raises(RequestError, match="handed over in memory") as caught:
        open_release(summary.run, Settings())
    assert caught.value.field == "evaluate.data"


def test_a_table_that_changes_in_place_while_it_is_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ages = np.arange(300) % 70 + 20
    frame = people(300).to_pandas().assign(age=pd.Series(ages, copy=False))
    batches = Source.batches

    def changing(source: Source, *repairs: Repairs) -> Iterator[pa.RecordBatch]:
        yield from batches(source, *repairs)
        ages[0] += 1

    monkeypatch.setattr(Source, "batches", changing)
    with pytest.raises(RequestError, match="changed while it was read"):
        release(few("none"), frame)
    assert spent() == 0
    assert not list(Settings().private_root.glob("store/people/*encoded_rows*"))


def test_a_damaged_table_is_refused_before_anything_is_reserved() -> None:
    region = pa.DictionaryArray.from_arrays(pa.array([0, 7]), pa.array(["north", "south"]), safe=False)
    table = people(2).set_column(2, "region", region)
    with pytest.raises(RequestError, match=r"columns\.region: .*damaged"):
        release(few("none"), table)
    assert spent() == 0
