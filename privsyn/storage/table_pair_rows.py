"""The synthetic rows of a release's further table, with the rows above them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from privsyn.data_contracts.linked_tables import name_one_place
from privsyn.data_contracts.release_spec import ReleaseSpec


def read_table_pair(spec: ReleaseSpec, table: str, read: Callable[[str], pa.Table]) -> pa.Table:
    """Return the synthetic rows of a further table, joined with the columns of the tables above it.

    ``read``: returns a file of the released folder.
    """
    rows, linked = read(f"tables/{table}.parquet"), spec.tables[table]
    while linked.of is not None:
        above, key = linked.of, str(spec.tables[linked.of].key)
        upper = read(f"tables/{above}.parquet")
        place = np.searchsorted(upper[key].to_numpy(), rows[key].to_numpy())  # keys are ascending numbers
        upper = upper.take(pa.array(place))
        for name in upper.column_names:
            rows = rows if name in rows.column_names else rows.append_column(name, upper[name])
        linked = spec.tables[above]
    places = (name_one_place(name) for name in spec.tables)
    for place in (c for c in places if c in spec.table_pairs[table].columns):
        rows = rows.append_column(place, pa.array(np.ones(rows.num_rows, np.int64)))
    return rows
