"""A folder with a synthetic table of any spec, without a release: values of every code, and a kept certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.pipelines.registry import plan_release
from privsyn.publish.folder import write_descriptions, write_synthetic_files, write_tables
from privsyn.publish.formats.tables import DescribedRelease, list_files, list_ranges
from privsyn.storage.released_files import read_certificate
from privsyn.tasks.codecs import plan
from privsyn.tasks.steps.decode import build_released_schema
from tests.support.places import FIXTURES
from tests.support.specs import make_spec

CERTIFICATE = read_certificate(FIXTURES / "released_0_2_0")
VERSIONS = {"privsyn-flows": "0.3.0", "opendp": "0.14.1"}
ABOUT: dict[str, Any] = {
    "title": "People: a table",
    "description": "A survey of people.\nIn two lines: \"quoted\", 100 % 'sure'.",
    "licence": "CC-BY-4.0",
    "publisher": "Statistics Office",
    "publisher_type": "Government",
    "contact": "help@stats.example.org",
    "homepage": "https://stats.example.org/people?year=2026",
    "keywords": ["people"],
    "published": "2026-11-21",
    "source": "Survey of people",
    "source_url": "https://stats.example.org/survey",
    "intended_use": "Teaching.",
    "justification": "The office's rule.",
    "region": "Nowhere",
    "sector": "Government",
}
AWKWARD: dict[str, Any] = {
    "order": {"kind": "integer", "min": -(2**53), "max": 2**53, "bins": 8, "nullable": True},
    'größe,\n"cm"': {"kind": "number", "min": 0.1, "max": 0.7, "type": "float32", "unit": "cm", "nullable": True},
    "select": {"kind": "categorical", "values": ["a,b", 'c"d', "e\nf", "=1+1", "NA", "ß", "1", " "], "nullable": True},
    "one": {"kind": "categorical", "values": ["only"]},
    "column-1": {"kind": "categorical", "values": [1, 2, 30]},
    "rate": {"kind": "categorical", "values": [0.1, 2.5]},
    "day": {"kind": "datetime", "type": "date", "min": "2010-01-01", "max": "2020-01-01", "nullable": True},
    "moment": {"kind": "datetime", "min": "2010-01-01", "max": "2020-01-01 12:30:00", "nullable": True},
    "fine": {"kind": "datetime", "min": "2010-01-01T00:00:00.250000", "max": "2010-01-01T00:00:02.5", "bins": 2},
    "yes": {"kind": "boolean", "nullable": True},
    "tiny": {"kind": "number", "min": -1e-300, "max": 1e300, "description": "Meaning | of it"},
    "id": {"kind": "drop"},
}


def awkward(**changes: Any) -> ReleaseSpec:
    """A spec of every kind of column, with names and categories that break careless writers."""
    return make_spec(AWKWARD, **{"formats": ["parquet", "csv"], "about": ABOUT, **changes})


def synthetic(spec: ReleaseSpec, rows: int = 200, seed: int = 0) -> pa.Table:
    """Rows with every code of every column about equally often; dictionaries in the order in which values appear."""
    order = tuple(spec.released_columns)
    encoding, rng = plan(spec, order), np.random.default_rng(seed)
    codes = {c.attribute: rng.permutation(np.arange(rows) % c.size) for c in encoding.codecs}
    columns = encoding.decode(codes, rng)
    arrays = [columns[name] for name in order]
    plain = [a.dictionary_decode() if pa.types.is_dictionary(a.type) else a for a in arrays]
    return pa.table(plain, schema=build_released_schema(encoding.list_table_ranges(order)))


def described(spec: ReleaseSpec, folder: Path, rows: int = 200, parts: int = 1) -> DescribedRelease:
    """Fill ``folder`` as a release does, but for note and manifest; what its descriptions were made from."""
    table, order = synthetic(spec, rows), tuple(spec.released_columns)
    folder.mkdir(parents=True, exist_ok=True)
    names = ["synthetic.parquet"] if parts == 1 else [f"synthetic/part-{i:05d}.parquet" for i in range(parts)]
    for i, name in enumerate(names):
        (folder / name).parent.mkdir(exist_ok=True)
        pq.write_table(table.slice(rows * i // parts, rows * (i + 1) // parts - rows * i // parts), folder / name)
    plan = plan_release(spec, column_order=tuple(order))
    write_tables(folder, plan.request)
    files = list_files(folder)
    write_descriptions(folder, plan, CERTIFICATE, rows, VERSIONS)
    assert len(write_synthetic_files(folder)) == parts
    return DescribedRelease(plan, CERTIFICATE, list_ranges(plan.request), rows, files, VERSIONS)
