"""A private table given as a public prior by mistake: refused where its fingerprint tells, before anything is spent."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path

from privsyn.base.errors import RequestError
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.names_of_tables import find_names, map_fingerprints
from privsyn.ledgers.known_tables import KnownTable
from privsyn.ledgers.ledger import Ledger
from privsyn.sources.canonical_bytes import compute_rows_fingerprint
from privsyn.sources.private_table import Source
from privsyn.sources.public_table import check_file, compute_prior_fingerprint
from privsyn.storage.store import Store

_UNUSED_NAME = ""
"""No data set has this name, so that a table known under any is known under another."""


def refuse_private_prior(
    spec: ReleaseSpec, source: Source, own: Collection[str], store: Store, ledger: Ledger, private_root: Path
) -> None:
    """Raise RequestError if the prior's file is the run's private table or one of a data set of the ledger.

    ``source``: the run's table; ``own``: the fingerprints of it and of its files.  Its rows in another order or file
    format, and its measured columns alone, are caught.  Some of its rows are not: to look for rows that two tables
    share would tell who is in the private one.
    """
    if spec.prior is None:
        return
    path = check_file(spec.prior)
    fingerprint = store.fingerprint([path])
    field = "prior.table" if spec.prior.table else "prior.release"
    cure = "Name a table that anybody may have: its statistics show in the release"
    if path.resolve().is_relative_to(private_root.resolve()):
        raise RequestError("lies in the private folder, where nothing is public; nothing was spent", cure, field)
    if fingerprint in own:
        raise RequestError("is the private table itself, or a file of it; nothing was spent", cure, field)
    if compute_prior_fingerprint(spec, path) == compute_rows_fingerprint(
        source.batches(), sorted(spec.measured_columns)
    ):
        raise RequestError("holds the rows of the private table; nothing was spent", cure, field)
    known = find_names(map_fingerprints(private_root, ledger.entries()), {fingerprint})
    table = KnownTable((fingerprint,), partial(store.mark, "table"), known)
    try:
        ledger.check_table(_UNUSED_NAME, table)
    except RequestError:
        raise RequestError(
            "is the private table, or a file of it, of a data set of the ledger; nothing was spent", cure, field
        ) from None
