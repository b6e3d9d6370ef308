"""A release as a receiver has it: the folder and its content."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from html import escape
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from privsyn.answers.questions import Questions
from privsyn.base.arguments import check_arguments
from privsyn.base.errors import RequestError
from privsyn.base.settings import load_settings
from privsyn.base.wording import describe_epsilon, describe_use
from privsyn.data_contracts.certificate import Certificate, Manifest
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.progress import format_html_table, format_paragraph, show_bar
from privsyn.storage.released_files import (
    check_released_file,
    find_release,
    list_synthetic_names,
    read_certificate,
    read_manifest,
    read_public_spec,
)

if TYPE_CHECKING:
    import pandas as pd

_FIELD = "query.release"

HEAD_ROWS = 5
"""Rows of the table that a notebook shows."""


@dataclass(frozen=True)
class Release(Questions):
    """A differentially private release: a folder that may be given away whole.

    ``privsyn.release`` makes one, ``privsyn.open_release`` opens one.  It answers questions about the private table
    with error bars (``count``, ``share``, ``mean``, ``quantile``, ``correlation``, ``regress``, ``estimate``,
    ``compare``; docs/receivers.md).  Privacy: everything it shows is in the released folder; it reads neither the
    private table nor the private folder.

    Attributes:
        folder: The released folder, an absolute path.
        drawn: The steps for which the call drew noise and paid, in order; empty if the release existed before, or was
            only opened.
    """

    folder: Path
    drawn: tuple[str, ...] = field(default=(), compare=False)

    def _show_simulation(self) -> AbstractContextManager[Callable[[int, int], None]]:
        return show_bar("simulating")

    @cached_property
    def manifest(self) -> Manifest:
        """The public request, versions, seeds, and the SHA-256 of every file; RequestError if it cannot be read."""
        return read_manifest(self.folder)

    @cached_property
    def certificate(self) -> Certificate:
        """The promise, and every number from which it follows; RequestError if it cannot be read or was changed."""
        self._check_file("certificate.json")
        return read_certificate(self.folder)

    @property
    def run(self) -> str:
        """The release's name, such as ``people-3f9a2c1b``."""
        return self.manifest.run

    @property
    def spec(self) -> ReleaseSpec:
        """The public request: the spec without the place of the private table."""
        return read_public_spec(self.manifest, _FIELD)

    @property
    def note(self) -> str:
        """The data-release note, Markdown."""
        return self._check_file("README.md").read_text(encoding="utf-8")

    @cached_property
    def table(self) -> pa.Table:
        """The synthetic table: the source's columns in their order, with the spec's types; its rows in random order."""
        return pa.concat_tables(pq.read_table(file) for file in self._files)

    def to_pandas(self) -> pd.DataFrame:
        """Return the synthetic table as a new pandas DataFrame."""
        frame: pd.DataFrame = self.table.to_pandas()
        return frame

    @cached_property
    def marginals(self) -> dict[str, pa.Table]:
        """The noisy counts from which the table was made, by file name.

        For a single statistic, use these rather than the rows: they have error bars.  ``consistent`` has one row a
        marginal: its ``attributes``, its ``counts`` (floats; the last attribute changes fastest, in the codes of
        ``recode``) and ``sigma``, the standard deviation of a count's noise when measured.  ``one_way``, ``scores`` and
        ``measured`` have the counts as measured, and their ``_receipts`` the price of each.  In ``measured``, pairs of
        one cell after the single columns are trends that were asked again.  Marginals of a further table of a tree
        begin with the table's name: ``drugs/consistent``.
        """
        names = [name for name in sorted(self.manifest.files) if name.startswith("marginals/")]
        return {
            name.removeprefix("marginals/").removesuffix(".parquet"): pq.read_table(self._check_file(name))
            for name in names
        }

    def publish(
        self, database: str, *, prefix: str | None = None, schema: str | None = None, replace: bool = False
    ) -> tuple[str, ...]:
        """Write rows, noisy counts and note into a database as tables with comments, all of them or none.

        ``database``: ``postgresql://HOST/NAME``, ``duckdb:///FILE`` or ``sqlite:///FILE``; a password is in
        ``PGPASSWORD`` or in the file that ``PGPASSFILE`` names.  ``prefix`` begins every table's name (None: the data
        set's name and ``_``); ``schema`` is created if missing.  The same release is not written twice; ``replace``
        replaces another release with these names.  Returns the tables' names.  Raises RequestError, with nothing
        written.
        """
        from privsyn.publish.databases import publish_tables

        return publish_tables(self.folder, database, prefix=prefix, schema=schema, replace=replace).tables

    @property
    def cost(self) -> str:
        """The price of the release, in one sentence."""
        c, total = self.certificate, self.certificate.dataset_total
        use = describe_use(
            Fraction(total.rho), Fraction(total.rho_cap), None if c.improves else Fraction(c.rho_budget), "it"
        )
        epsilons = describe_epsilon(total.epsilon, total.epsilon_cap, total.delta)
        return (
            f"epsilon {c.epsilon:g} with delta {c.delta:g}; of the data set's lifetime cap, when it was made: {use} "
            f"({epsilons})."
        )

    def of_table(self, name: str) -> FurtherTable:
        """Return a further table of a tree of tables, which answers questions (``count``, ``share`` and so on).

        ``name``: the table's name in the spec.  Questions may name its columns and the columns of the tables above it.
        Answers are about persons, each by one row.  Raises RequestError if the release has no such table.
        """
        further = self.spec.further_tables
        if name not in further:
            problem = f"has no further table {name[:60]!r}"
            cure = f"Name one of {', '.join(further)}" if further else "Leave it out: the release has none"
            raise RequestError(problem, cure, "query.table")
        return FurtherTable(self.folder, name)

    @cached_property
    def _files(self) -> list[Path]:
        return [self._check_file(name) for name in list_synthetic_names(self.manifest)]

    def _check_file(self, name: str) -> Path:
        """Return the path of a file of the folder; RequestError unless it is the published one."""
        return check_released_file(self.folder, self.manifest, name, _FIELD)

    def __repr__(self) -> str:
        c = self.certificate
        return f"<Release {self.run}: {self.manifest.rows:,} rows, ({c.epsilon:g}, {c.delta:g})-DP, {self.folder}>"

    def _repr_html_(self) -> str:
        c = self.certificate
        with pq.ParquetFile(self._files[0]) as file:  # no other rows: the table may be larger than memory
            first = islice(file.iter_batches(batch_size=HEAD_ROWS), 1)
            head = pa.Table.from_batches(list(first), file.schema_arrow)
        promise = (
            f"{self.manifest.rows:,} synthetic rows with ({c.epsilon:g}, {c.delta:g})-differential privacy for adding "
            f"or removing {c.unit_of_protection}."
        )
        cells = [["" if value is None else str(value) for value in row.values()] for row in head.to_pylist()]
        return (
            f"<h4>Release {escape(self.run)}</h4>"
            + format_paragraph(promise, f"Cost: {self.cost}", f"Folder, to publish: {self.folder}")
            + format_html_table(head.column_names, cells)
        )


@dataclass(frozen=True)
class FurtherTable(Questions):
    """A further table of a release (:meth:`Release.of_table`), which answers the questions that a release does.

    Privacy: it reads nothing but the released folder.
    """

    folder: Path
    name: str

    @property
    def _child_table(self) -> str:
        return self.name


@check_arguments
def open_release(release: str | Path, *, out: str | Path | None = None) -> Release:
    """Open an existing release.  It needs no private table, ledger or private folder.

    Args:
        release: A run's name in the released root, or the path of a released folder.  Or its URL in an object store
            (``s3://``, ``gs://``, ``abfs://``), from which it is fetched and checked by its hashes.
        out: The folder with ``released/``; default: ``PRIVSYN_OUT``, else ``privsyn-out`` in the working folder.

    Returns:
        The release.  Its table and marginals are read when first used, and each file is checked by its hash.

    Raises:
        RequestError: The folder is not a release, has an unknown form, was made with test noise, or its certificate was
            changed.  Other files are checked when first used.

    Privacy: reads nothing but the released folder, draws nothing and spends nothing.
    """
    opened = Release(find_release(str(release), load_settings(out), _FIELD))
    read_public_spec(opened.manifest, _FIELD)
    _ = opened.certificate
    return opened
