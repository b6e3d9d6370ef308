"""The inputs of a release's metadata: the public plan, the certificate, the columns and the files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from privsyn.data_contracts.certificate import Certificate, ManifestFile, StageCost
from privsyn.data_contracts.columns import BooleanColumn, Zoned
from privsyn.data_contracts.publication import About
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.data_contracts.spec_checks import NOT_MEASURED
from privsyn.data_contracts.tables import ValueRange
from privsyn.engine.plan import Plan
from privsyn.engine.request import Request
from privsyn.engine.step import LookDescription, get_step, release_steps

_TABLES = {
    "parquet": re.compile(r"synthetic(/part-[0-9]+)?\.parquet"),
    "csv": re.compile(r"synthetic(_csv/part-[0-9]+)?\.csv"),
}


@dataclass(frozen=True)
class DescribedRelease:
    """The public facts of a release for its metadata.

    ``ranges``: released column -> its public domain, in the table's order; ``rows``: number of rows of the synthetic
    table; ``files``: relative name -> file in the folder so far; ``versions``: package -> version.
    """

    plan: Plan
    certificate: Certificate
    ranges: Mapping[str, ValueRange]
    rows: int
    files: Mapping[str, ManifestFile]
    versions: Mapping[str, str]

    @property
    def spec(self) -> ReleaseSpec:
        """The public request."""
        return self.plan.request.spec

    def find_look(self, stage: StageCost) -> LookDescription:
        """Return the facts of a look at the private table, from its line in the certificate."""
        return get_step(release_steps(self.plan.steps), stage.step).look

    @property
    def about(self) -> About:
        """The publisher's description of the release, the field `about` of its spec."""
        return self.spec.about

    @property
    def title(self) -> str:
        """The publisher's title, or the data set's name."""
        return self.about.title or f"Synthetic table {self.certificate.dataset}"

    @property
    def promise(self) -> str:
        """The promise in one sentence."""
        c = self.certificate
        return (
            "The rows are synthetic and belong to nobody. They were drawn from noisy counts of a private table, with "
            f"({c.epsilon:g}, {c.delta:g})-differential privacy: neighbouring tables differ by adding or removing "
            f"{c.unit_of_protection}."
        )

    @property
    def description(self) -> str:
        """The publisher's description, then the promise and a reference to the certificate."""
        parts = (self.about.description.strip(), self.promise, "certificate.json holds the argument in figures.")
        return "\n\n".join(p for p in parts if p)

    @property
    def licence_url(self) -> str:
        """Web address of the licence; for an SPDX identifier, its SPDX page."""
        licence = self.about.licence
        return licence if "://" in licence or not licence else f"https://spdx.org/licenses/{licence}.html"

    def tables(self, suffix: str) -> list[str]:
        """Return the files of the synthetic rows in this format, in order: one file, or parts."""
        return sorted(name for name in self.files if _TABLES[suffix].fullmatch(name))


def list_ranges(request: Request) -> dict[str, ValueRange]:
    """Return released column -> its public domain, in the table's order."""
    return request.encoding.list_table_ranges(request.column_order)


def list_categories(domain: ValueRange) -> list[str]:
    """Return the categories of a text column; empty for any other column."""
    return domain.values.to_pylist() if domain.values is not None and pa.types.is_string(domain.type) else []


def get_null_text(ranges: Mapping[str, ValueRange]) -> str:
    """Return the text for null in a CSV file of these columns: empty, unless that is ambiguous.

    It is ambiguous beside an empty category, or in a single column, whose empty lines many programs skip.  Then the
    text is the first of NA, NA_, NA__ ... that is not a category.  A function of the public spec alone.
    """
    texts = {text for domain in ranges.values() for text in list_categories(domain)}
    if "" not in texts and len(ranges) > 1:
        return ""
    null_text = "NA"
    while null_text in texts:
        null_text += "_"
    return null_text


def list_files(folder: Path) -> dict[str, ManifestFile]:
    """Return relative name -> SHA-256 and size of every file in the folder, except the manifest."""
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != "manifest.json":
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            files[name] = ManifestFile(sha256=digest, bytes=path.stat().st_size)
    return files


def get_kind(type_: pa.DataType) -> str:
    """Return the kind of a column of this type, named as in the Table Schema."""
    if pa.types.is_boolean(type_):
        return "boolean"
    if pa.types.is_integer(type_):
        return "integer"
    if pa.types.is_floating(type_):
        return "number"
    if pa.types.is_date(type_):
        return "date"
    if pa.types.is_time(type_):
        return "time"
    return "datetime" if pa.types.is_timestamp(type_) else "string"


TELLS_NOTHING = f"This column {NOT_MEASURED}."
"""The remark on an unmeasured column in machine-readable descriptions."""


def format_meaning(column: Any) -> str:
    """Return the spec's description with its unit."""
    unit = "" if isinstance(column, BooleanColumn | Zoned) else getattr(column, "unit", "")
    return f"{column.description} ({unit})" if column.description and unit else column.description or unit


def add_unmeasured(words: str, column: Any) -> str:
    """Return the description of a released column, with a remark if it was not measured."""
    return words if column.measured else f"{words} {TELLS_NOTHING}".strip()
