"""The types of the synthetic table as programs read it: categories in the spec's order, whole numbers beside nulls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from privsyn.data_contracts.tables import ValueRange

_NULLABLE = {
    "bool": "boolean",
    **{f"int{bits}": f"Int{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"UInt{bits}" for bits in (8, 16, 32, 64)},
}
"""Arrow type -> the pandas type that has nulls beside its values."""


def build_released_schema(ranges: Mapping[str, ValueRange], order: Sequence[str]) -> pa.Schema:
    """Return the synthetic table's schema, and the pandas types that it is read as, by the public spec alone."""
    fields = [pa.field(name, get_released_type(ranges[name]), nullable=ranges[name].nullable) for name in order]
    return pa.schema(fields, metadata={"pandas": json.dumps(_describe_pandas(fields))})


def get_released_type(domain: ValueRange) -> pa.DataType:
    """Return the column's type; of categories that are texts, a dictionary of them."""
    is_text = domain.values is not None and pa.types.is_string(domain.type)
    return pa.dictionary(pa.int32(), pa.string()) if is_text else domain.type


def as_released(array: pa.Array, domain: ValueRange) -> pa.Array:
    """Return the values with that type, the dictionary in the spec's order."""
    if not pa.types.is_dictionary(get_released_type(domain)):
        return array
    if pa.types.is_dictionary(array.type) and array.dictionary.equals(domain.values):
        return array
    return pa.DictionaryArray.from_arrays(pc.index_in(array, value_set=domain.values).cast(pa.int32()), domain.values)


def _describe_pandas(fields: Sequence[pa.Field]) -> dict[str, Any]:
    """Return what pyarrow keeps of a pandas table: here, which columns are integers or booleans with nulls."""
    columns = []
    for field in fields:
        types = {"pandas_type": str(field.type), "numpy_type": _name_numpy_type(field), "metadata": None}
        columns.append({"name": field.name, "field_name": field.name, **types})
    return {"index_columns": [], "column_indexes": [], "columns": columns, "pandas_version": "2.0.0"}


def _name_numpy_type(field: pa.Field) -> str:
    name = str(field.type)
    if field.nullable and name in _NULLABLE:
        return _NULLABLE[name]
    return name if pa.types.is_integer(field.type) or pa.types.is_boolean(field.type) else "object"
