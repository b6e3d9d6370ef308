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
from privsyn.engine.step import Look, get_step, release_steps

_TABLES = {
    "parquet": re.compile(r"synthetic(/part-[0-9]+)?\.parquet"),
    "csv": re.compile(r"synthetic(_csv/part-[0-9]+)?\.csv"),
}


@dataclass(frozen=True)
class DescribedRelease:
    """A release as its metadata sees it; nothing in it is private.

    ``ranges``: released column -> its public domain, in the table's order; ``rows``: rows of the synthetic table;
    ``files``: what lies in the folder so far, by relative name; ``versions``: package -> version.
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

    def look(self, stage: StageCost) -> Look:
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
        """The publisher's description, then the promise and where its argument is."""
        parts = (self.about.description.strip(), self.promise, "certificate.json holds the argument in figures.")
        return "\n\n".join(p for p in parts if p)

    @property
    def licence_url(self) -> str:
        """Web address of the licence; of an SPDX identifier, its page there."""
        licence = self.about.licence
        return licence if "://" in licence or not licence else f"https://spdx.org/licenses/{licence}.html"

    def tables(self, suffix: str) -> list[str]:
        """Return the files that hold the synthetic rows in this format, in order: one, or the parts of a folder."""
        return sorted(name for name in self.files if _TABLES[suffix].fullmatch(name))


def list_ranges(request: Request) -> dict[str, ValueRange]:
    """Return released column -> its public domain, in the table's order."""
    return request.encoding.list_table_ranges(request.column_order)


def list_categories(domain: ValueRange) -> list[str]:
    """Return the categories of a column of texts; none of any other column."""
    return domain.values.to_pylist() if domain.values is not None and pa.types.is_string(domain.type) else []


def get_null_text(ranges: Mapping[str, ValueRange]) -> str:
    """Return the text for null in a CSV file of these columns: empty, unless an empty text would be ambiguous.

    An empty category would look the same in most programs, and a line with nothing in it is skipped by many: then it is
    the first of NA, NA_, NA__ ... that is not a category.  A function of the public spec alone.
    """
    texts = {text for domain in ranges.values() for text in list_categories(domain)}
    if "" not in texts and len(ranges) > 1:
        return ""
    null_text = "NA"
    while null_text in texts:
        null_text += "_"
    return null_text


def list_files(folder: Path) -> dict[str, ManifestFile]:
    """Return the SHA-256 and size of every file in the folder but the manifest itself, by relative name."""
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != "manifest.json":
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            files[name] = ManifestFile(sha256=digest, bytes=path.stat().st_size)
    return files


def get_kind(type_: pa.DataType) -> str:
    """Return what a column of this type holds, in one word, which is also the Table Schema's."""
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
"""What machine-readable descriptions say beside the column."""


def format_meaning(column: Any) -> str:
    """Return the spec's description with its unit."""
    unit = "" if isinstance(column, BooleanColumn | Zoned) else getattr(column, "unit", "")
    return f"{column.description} ({unit})" if column.description and unit else column.description or unit


def add_unmeasured(words: str, column: Any) -> str:
    """Return the description of a released column, which says so if the column was not measured."""
    return words if column.measured else f"{words} {TELLS_NOTHING}".strip()
