"""One small release at import, so that processes forked from one that has imported this are warm.

Belongs here: what a fork server preloads beyond modules: kernels, the context of the contract checks.  Does not belong
here: anything that a test looks at.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow.parquet as pq

from privsyn.base.settings import Settings
from tests.support.releases import release_in_process
from tests.support.specs import make_spec, people


def release_once() -> None:
    """A real release of a made-up table, in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pq.write_table(people(50), folder / "people.parquet")
        settings = Settings(out=folder / "out", ledger=str(folder / "ledger.sqlite"))
        release_in_process(make_spec(data=str(folder / "people.parquet")), settings)


release_once()
