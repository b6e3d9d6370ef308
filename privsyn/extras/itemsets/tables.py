"""The tables of an itemset release, and what each must be."""

from __future__ import annotations

import pyarrow as pa

from privsyn.data_contracts.artifacts import Zone
from privsyn.data_contracts.tables import PROFILE_EXPECTATIONS, Expectation, TableContract, require_at_least


def _make_released_table(name: str, schema: pa.Schema, *expectations: Expectation) -> TableContract:
    nulls = [Expectation("expect_column_values_to_not_be_null", {"column": c}) for c in schema.names]
    return TableContract(name, Zone.RELEASED, schema, (*nulls, *expectations))


TRANSACTION_ROWS = TableContract("transaction_rows", Zone.PRIVATE, None, PROFILE_EXPECTATIONS)
"""Private transactions: one a row, the codes of its items ascending, at most as many as the spec keeps."""

FREQUENT_ITEMS = _make_released_table(
    "frequent_items",
    pa.schema([("place", pa.int32()), ("code", pa.int32()), ("item", pa.string()), ("count", pa.int64())]),
    Expectation("expect_column_values_to_be_unique", {"column": "code"}),
    require_at_least("place", 0),
)
"""Items whose itemsets are looked at, by noisy count; ``code``: place in the universe."""

BASES = _make_released_table(
    "bases",
    pa.schema([("basis", pa.int32()), ("places", pa.list_(pa.int32())), ("items", pa.list_(pa.string()))]),
    Expectation("expect_column_values_to_be_unique", {"column": "basis"}),
)
"""The bases, whose marginals are counted; ``places``: of FREQUENT_ITEMS, ascending."""

ITEMSETS = _make_released_table(
    "itemsets",
    pa.schema(
        [
            ("rank", pa.int32()),
            ("items", pa.list_(pa.string())),
            ("size", pa.int32()),
            ("count", pa.float64()),
            ("count_std_error", pa.float64()),
            ("support", pa.float64()),
            ("std_error", pa.float64()),
            ("low", pa.float64()),
            ("high", pa.float64()),
        ]
    ),
    Expectation("expect_column_values_to_be_unique", {"column": "rank"}),
    require_at_least("size", 1),
    require_at_least("count_std_error", 0, strict=True),
    require_at_least("std_error", 0, strict=True),
)
"""Frequent itemsets, the most frequent first: count and its noise in transactions; support, its noise and its 95 %
interval as shares of the noisy number of transactions."""
