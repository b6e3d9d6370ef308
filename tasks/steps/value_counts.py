"""Steps *locate values* and *value counts* (release): count single values inside heavy cells of numbers.

Not in the paper.  tasks/estimation/frequent_values.py chooses the values and interprets their counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.receipts import Query, compute_sigma
from privsyn.data_contracts.tables import build_code_schema
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.estimation.frequent_values import CountedValues


def build_located_domain(counted: Sequence[CountedValues]) -> Domain:
    """Return the domain of located rows: a code for each counted value of an attribute, and one for all others."""
    return Domain.of({c.attribute: len(c.number) + 1 for c in counted})


def locate_rows(
    numbers: Iterable[pa.RecordBatch], plan: EncodingPlan, counted: Sequence[CountedValues]
) -> Iterator[pa.RecordBatch]:
    """Yield the counted value of every kept row, as codes of :func:`build_located_domain`.

    ``numbers``: the rows' lattice numbers, as *encode* stored them.  Each row is located by itself: adding or removing
    one person adds or removes at most ``unit.records`` rows, and changes no other.
    """
    schema = build_code_schema(build_located_domain(counted))
    codecs = {codec.attribute: codec for codec in plan.wide_celled}
    for batch in numbers:
        arrays = []
        for c, field in zip(counted, schema, strict=True):
            found = codecs[c.attribute].find_multiples(batch.column(c.attribute))
            place = np.searchsorted(c.number, found).clip(max=len(c.number) - 1)
            code = np.where(c.number[place] == found, place, len(c.number))
            arrays.append(pa.array(code.astype(field.type.to_pandas_dtype())))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def plan_queries(counted: Sequence[CountedValues], rho: Fraction, records: int) -> list[Query]:
    """Return one query per attribute, each at ``rho`` / m: the counts of its values, and last of all other values.

    Privacy: all m answers together are rho-zCDP for adding or removing one person with at most ``records`` = k records.
    Each is a histogram of disjoint cells with L2 sensitivity k (all k records may have one value) and costs at most rho
    / m.  The counted values follow from noisy one-ways, released before (adaptive composition, Theorem 1).  m mechanism
    instances add up.
    """
    each = rho / max(len(counted), 1)
    return [Query((c.attribute,), len(c.number) + 1, records, compute_sigma(each, records)) for c in counted]
