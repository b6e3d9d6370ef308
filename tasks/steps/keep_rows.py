"""Step *keep rows* (transform): all kept rows of every person, in coarse codes.

Not in the paper.  Which rows are kept follows from the person's own rows (tasks/panels/choose_rows.py).
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
    """Return the domain of the kept rows: the coarse codes of columns that every row has, under names of their own."""
    counted = plan.attributes_of([name for codec in plan.of_rows.codecs for name in codec.ranges()])
    return Domain.of({name_all_rows(a): recode[a].size for a in counted})


def keep_rows(rows: Iterable[pa.RecordBatch], plan: EncodingPlan, recode: Recode) -> Iterator[pa.RecordBatch]:
    """Yield the rows that are kept of each person as codes, padded: a filtered value has the code ``size``.

    ``rows``: as *encode* stored them.  Adding or removing one person adds or removes ``unit.records`` rows at most, and
    changes no other.
    """
    names = build_kept_domain(plan, recode).attributes
    counted = {a: r for a, r in recode.items() if name_all_rows(a) in names}
    for batch in recode_rows((batch.select(list(counted)) for batch in rows), counted):
        yield batch.rename_columns(list(names))
