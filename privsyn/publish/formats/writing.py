"""Write the files beside the Parquet files into a released folder: CSV, the note and the three descriptions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from privsyn.data_contracts.certificate import Certificate
from privsyn.engine.plan import Plan
from privsyn.engine.request import Request
from privsyn.publish import related_pairs
from privsyn.publish.formats import croissant, data_package, deployments_registry
from privsyn.publish.formats.csv_file import choose_style, name_csv, write_csv
from privsyn.publish.formats.described import DescribedRelease, list_files, list_ranges
from privsyn.publish.formats.linked_files import get_published_spec, list_linked_ranges, name_linked_file
from privsyn.publish.related_pairs import RelatedPair

DESCRIPTIONS = frozenset(
    {
        "README.md",
        related_pairs.NAME,
        data_package.SCHEMA,
        data_package.NAME,
        croissant.NAME,
        deployments_registry.NAME,
    }
)
"""The files that only describe a release; later versions may word them differently."""


def write_tables(folder: Path, request: Request) -> None:
    """Write the tables in the spec's other formats, one file for each Parquet file of the folder."""
    if "csv" in request.spec.formats:
        ranges = list_ranges(request)
        for parquet in write_synthetic_files(folder):
            csv = folder / name_csv(parquet.relative_to(folder).as_posix())
            csv.parent.mkdir(exist_ok=True)
            write_csv(parquet, csv, ranges, choose_style(request.spec, ranges))
        if request.spec.tables:
            for table, linked in list_linked_ranges(request).items():
                name, spec = name_linked_file(table), get_published_spec(request.spec, table)
                write_csv(folder / name, folder / name_csv(name), linked, choose_style(spec, linked))


def write_synthetic_files(folder: Path) -> list[Path]:
    """Return the Parquet files of the synthetic table in order: one file, or parts."""
    return sorted(p for p in (folder / "synthetic.parquet", *folder.glob("synthetic/part-*.parquet")) if p.is_file())


def write_note(folder: Path, note: str, pairs: Sequence[RelatedPair]) -> None:
    """Write ``README.md``, and its picture if pairs of columns were measured."""
    (folder / "README.md").write_text(note, encoding="utf-8")
    if pairs:
        (folder / related_pairs.NAME).write_text(related_pairs.draw_picture(pairs), encoding="utf-8")


def write_descriptions(
    folder: Path,
    plan: Plan,
    certificate: Certificate,
    rows: int,
    versions: Mapping[str, str],
) -> None:
    """Write ``datapackage.json``, ``croissant.json`` and ``registry.yaml``; only the manifest is written later.

    ``rows``: number of rows of the synthetic table.  The result depends only on the arguments and the folder's files.
    """
    ranges = list_ranges(plan.request)
    parts = len(write_synthetic_files(folder))
    release = DescribedRelease(plan, certificate, ranges, rows, list_files(folder), versions)
    if parts > 1:
        _write_json(folder / data_package.SCHEMA, data_package.build_table_schema(release))
        release = DescribedRelease(plan, certificate, ranges, rows, list_files(folder), versions)
    _write_json(folder / data_package.NAME, data_package.build_data_package(release))
    _write_json(folder / croissant.NAME, croissant.build_croissant(release))
    (folder / deployments_registry.NAME).write_text(
        deployments_registry.format_registry_yaml(release), encoding="utf-8"
    )


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
