"""The gate of public inputs: a private table that a spec calls public is refused before anything is spent.

A prior, the tables of lookups and totals, and the items of itemsets all pass here.  Only whole tables are compared,
never rows: shared rows would reveal who is in the private table.  Whether two tables are equal also reveals something
about private rows, so comparisons are counted, and after a number of them no changed input is compared.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from privsyn.base.errors import RequestError
from privsyn.data_contracts.columns import Zoned
from privsyn.data_contracts.public_counts import PublicFile
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.ledgers.known_tables import KnownTable, find_names, map_fingerprints
from privsyn.ledgers.ledger import Ledger
from privsyn.sources.private_table import Source
from privsyn.sources.rows_fingerprint import compute_lines_fingerprint, compute_rows_fingerprint
from privsyn.specs.public_files import check_file, compute_sha256, open_shared_columns
from privsyn.storage.records import PublicInputsRecord, Records, RefusedInput
from privsyn.storage.store import Store

RECORD = "public-inputs"
"""The private record of a data set's comparisons; removing it allows more of them."""

MOST_REFUSALS = 3
"""Public inputs of a data set that may equal a private table before no changed input is compared any more."""

MOST_COMPARED = 100
"""Most public inputs of a data set that are compared."""

PRIVATE_TABLE = "cannot be told from a private table (PRIVATE: pass it on to nobody; it was noted); nothing was spent"
"""The single message for every cause."""

_CURE = "Name a table that anybody may have: its content shows in the release"

_UNUSED_NAME = ""
"""A name of no data set, so that every known table is known under another name."""


@dataclass(frozen=True)
class PrivateTables:
    """The private tables that a public input must not equal: the run's, and the tables of the ledger's data sets.

    ``source``: the run's table; ``own``: the fingerprints of it and of its files.
    """

    source: Source
    own: Sequence[str]
    store: Store
    ledger: Ledger
    private_root: Path

    def refuse_as_public(self, spec: ReleaseSpec, records: Records) -> None:
        """Raise RequestError if a public input of the spec is a private table; the data set's lock is held.

        It detects equal bytes (a copy, a hard link), equal rows in another order or file format, and equal values in
        the shared measured columns.  It does not detect a subset of rows.
        """
        for stated in spec.public_inputs:
            path = _find(stated, spec)
            if path is None:
                continue
            if path.resolve().is_relative_to(self.private_root.resolve()):
                problem = "is in the private folder, where nothing is public; nothing was spent"
                raise RequestError(problem, _CURE, stated.field)
            digest = self.store.fingerprint([path])
            known = _note_comparison(records, stated.field, digest)
            if self._include(path, digest, spec):
                _note_refusal(records, known, stated.field, digest)
                raise RequestError(PRIVATE_TABLE, _CURE, stated.field)

    def _include(self, path: Path, digest: str, spec: ReleaseSpec) -> bool:
        """Return whether the file is a private table, by its bytes or its rows.  Every comparison is made."""
        known = find_names(map_fingerprints(self.private_root, self.ledger.entries()), {digest})
        table = KnownTable((digest,), partial(self.store.mark, "table"), known)
        try:
            self.ledger.check_table(_UNUSED_NAME, table)
            of_ledger = False
        except RequestError:
            of_ledger = True
        return any((digest in self.own, of_ledger, _has_equal_rows(path, spec, self.source)))


def _find(stated: PublicFile, spec: ReleaseSpec) -> Path | None:
    """Return the input's file; None if it is missing or has changed, since its rows are also in the spec.

    Raises RequestError for a missing prior.
    """
    if spec.prior is not None and stated.field.startswith("prior."):
        return check_file(spec.prior)
    path = Path(stated.path)
    try:
        return path if path.is_file() and compute_sha256(path) == stated.sha256 else None
    except (OSError, ValueError, RequestError):
        return None


def _note_comparison(records: Records, field: str, digest: str) -> PublicInputsRecord:
    """Record this comparison before it is made, and return the data set's comparisons.

    Raises RequestError for a new input after the last allowed comparison.
    """
    record = records.load_as(RECORD, PublicInputsRecord) or PublicInputsRecord()
    if digest in record.compared:
        return record
    if len(record.refused) >= MOST_REFUSALS or len(record.compared) >= MOST_COMPARED:
        raise RequestError(
            "is another public input than before, but no more of them are compared with the private table of this data "
            "set; nothing was spent",
            f"Ask the operator, who can allow more by removing {RECORD}.json of this data set from private/records",
            field,
        )
    record = PublicInputsRecord(compared=(*record.compared, digest), refused=record.refused)
    records.save(RECORD, record.model_dump(mode="json"))
    return record


def _note_refusal(records: Records, record: PublicInputsRecord, field: str, digest: str) -> None:
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    before = record.refused.get(digest)
    times = 1 if before is None else before.times + 1
    refused = {**record.refused, digest: RefusedInput(field=field, last=now, times=times)}
    records.save(RECORD, PublicInputsRecord(compared=record.compared, refused=refused).model_dump(mode="json"))


def _has_equal_rows(path: Path, spec: ReleaseSpec, source: Source) -> bool:
    """Return whether the file has the rows of the private table, in any order and format."""
    public = open_shared_columns(path, spec)
    if public is None:
        texts = [Path(name) for name in source.names if None in source.types.values()]
        return bool(texts) and compute_lines_fingerprint([path]) == compute_lines_fingerprint(texts)
    names = sorted(set(public.read) & set(source.read))
    moments = {name for name, column in spec.measured_columns.items() if isinstance(column, Zoned)}
    return compute_rows_fingerprint(public.batches(), names, moments) == compute_rows_fingerprint(
        source.batches(), names, moments
    )
