"""Step *list without rows* (transform): list the parent-table persons that have no row, in coarse codes.

Not in the paper.  Adding or removing one person with all rows adds or removes at most one record of the result.  The
reason is that each person's own rows decide whether the person is in the result (tasks/panels/choose_rows.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.tables import build_code_schema
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.estimation.recode import Recode


def list_attributes(plan: EncodingPlan) -> tuple[str, ...]:
    """Return the parent-table attributes, with columns, by which persons without rows are counted."""
    constant = {*plan.get_order()[0].constant}
    held = (c for c in plan.of_rows.codecs if {*c.sources} <= constant and c.ranges() and c.chances is None)
    return tuple(c.attribute for c in held)


def build_without_domain(recode: Recode, plan: EncodingPlan) -> Domain:
    """Return the domain of the persons without rows."""
    return Domain.of({a: recode[a].size for a in list_attributes(plan)})


def list_without_rows(rows: Iterable[pa.RecordBatch], plan: EncodingPlan, recode: Recode) -> Iterator[pa.RecordBatch]:
    """Yield the persons without rows as codes of :func:`build_without_domain`; ``rows``: as *encode* stored them."""
    domain = build_without_domain(recode, plan)
    schema = build_code_schema(domain)
    for batch in rows:
        arrays = []
        for field in schema:
            column_recode = recode[field.name]
            coarse = np.minimum(column_recode.coarse[np.asarray(batch.column(field.name))], column_recode.size - 1)
            arrays.append(pa.array(coarse.astype(field.type.to_pandas_dtype())))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
