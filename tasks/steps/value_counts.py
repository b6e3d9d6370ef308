"""Steps *locate values* and *value counts* (release): counts of the single values inside heavy cells of numbers.

Not in the paper.  Which values are counted, and what their counts say, is in tasks/estimation/frequent_values.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.promise import Unit
from privsyn.data_contracts.receipts import Query, compute_sigma
from privsyn.data_contracts.tables import build_code_schema
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.estimation.frequent_values import CountedValues
from privsyn.tasks.steps.encode import Batches, Repairs, iterate_kept_batches


def build_located_domain(counted: Sequence[CountedValues]) -> Domain:
    """Return the domain of located rows: a code for each counted value of an attribute, and one for all others."""
    return Domain.of({c.attribute: len(c.number) + 1 for c in counted})


def locate_rows(
    batches: Batches, plan: EncodingPlan, unit: Unit, counted: Sequence[CountedValues]
) -> Iterator[pa.RecordBatch]:
    """Yield which of the counted values every kept row has, as codes of :func:`build_located_domain`.

    Each row by itself: adding or removing one person adds or removes ``unit.records`` rows at most, and changes no
    other.  Where none is counted no row is read.
    """
    schema = build_code_schema(build_located_domain(counted))
    codecs = {codec.attribute: codec for codec in plan.wide_celled}
    for batch in iterate_kept_batches(batches, plan, unit, Repairs()) if counted else ():
        arrays = []
        for c, field in zip(counted, schema, strict=True):
            codec = codecs[c.attribute]
            numbers = codec.find_numbers(batch.column(codec.sources[0]))
            place = np.searchsorted(c.number, numbers).clip(max=len(c.number) - 1)
            code = np.where(c.number[place] == numbers, place, len(c.number))
            arrays.append(pa.array(code.astype(field.type.to_pandas_dtype())))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def plan_queries(counted: Sequence[CountedValues], rho: Fraction, records: int) -> list[Query]:
    """Return one query per attribute, each at ``rho`` / m: the counts of its values, and last of all others.

    Privacy: all m answers together are rho-zCDP for adding or removing one person with at most ``records`` = k records:
    each is a histogram of disjoint cells, of L2 sensitivity k (all k records may have one value), and costs at most
    rho / m.  Which values are counted follows from noisy one-ways, which are released before (adaptive composition,
    Theorem 1).  m mechanism instances add up.
    """
    each = rho / max(len(counted), 1)
    return [Query((c.attribute,), len(c.number) + 1, records, compute_sigma(each, records)) for c in counted]
