"""Step *keep rows* (transform): recode all kept rows of every person.

Not in the paper.  Which rows are kept depends only on the person's own rows (tasks/panels/choose_rows.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.panels import name_all_rows
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.estimation.recode import Recode
from privsyn.tasks.steps.compress_domain import recode_rows


def build_kept_domain(plan: EncodingPlan, recode: Recode) -> Domain:
    """Return the domain of the kept rows: coarse codes of the columns that every row has, under separate names."""
    counted = plan.attributes_of([name for codec in plan.of_rows.codecs for name in codec.ranges()])
    return Domain.of({name_all_rows(a): recode[a].size for a in counted})


def keep_rows(rows: Iterable[pa.RecordBatch], plan: EncodingPlan, recode: Recode) -> Iterator[pa.RecordBatch]:
    """Yield each person's kept rows as coarse codes, padded: a filtered value has the code ``size``.

    ``rows``: as *encode* stored them.  Adding or removing one person adds or removes at most ``unit.records`` rows, and
    changes no other row.
    """
    names = build_kept_domain(plan, recode).attributes
    counted = {a: r for a, r in recode.items() if name_all_rows(a) in names}
    for batch in recode_rows((batch.select(list(counted)) for batch in rows), counted):
        yield batch.rename_columns(list(names))
