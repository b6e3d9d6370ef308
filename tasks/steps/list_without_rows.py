"""Step *list without rows* (transform): the persons of the table above that have no row, in coarse codes.

Not in the paper.  Adding or removing one person with all rows adds or removes at most one record of the result: which
persons are in it follows from each person's own rows (tasks/panels/choose_rows.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.tables import build_code_schema
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.panels.choose_rows import Passes
from privsyn.tasks.steps.encode import Repairs, encode_batch, iterate_persons


def list_attributes(plan: EncodingPlan) -> tuple[str, ...]:
    """Return the attributes of the table above that persons without rows are counted by: those that hold columns."""
    constant = {*plan.get_order()[0].constant}
    held = (c for c in plan.of_rows.codecs if {*c.sources} <= constant and c.ranges() and c.chances is None)
    return tuple(c.attribute for c in held)


def build_without_domain(recode: Recode, plan: EncodingPlan) -> Domain:
    """Return the domain of the persons without rows."""
    return Domain.of({a: recode[a].size for a in list_attributes(plan)})


def list_without_rows(passes: Passes, plan: EncodingPlan, recode: Recode) -> Iterator[pa.RecordBatch]:
    """Yield the persons without rows as codes of :func:`build_without_domain`."""
    domain = build_without_domain(recode, plan)
    schema, of_rows = build_code_schema(domain), plan.of_rows.only(domain.attributes)
    places = [runs.without for runs in iterate_persons(passes, plan)]
    wanted, start = np.sort(np.concatenate([np.empty(0, np.int64), *places])), 0
    for batch in passes():
        low, high = np.searchsorted(wanted, [start, start + batch.num_rows])
        codes = encode_batch(batch.take(pa.array(wanted[low:high] - start)), of_rows, Repairs())
        start += batch.num_rows
        arrays = []
        for field in schema:
            column_recode = recode[field.name]
            coarse = np.minimum(column_recode.coarse[np.asarray(codes.column(field.name))], column_recode.size - 1)
            arrays.append(pa.array(coarse.astype(field.type.to_pandas_dtype())))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
