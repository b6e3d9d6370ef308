"""Blocking contract checks with Great Expectations, run by the shell at every boundary.

Great Expectations takes seconds to import, so it is imported at the first check. Each expectation takes milliseconds
on the smallest table, so those about nulls, half of all, are answered by Arrow, which knows them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import cache, lru_cache
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from privsyn.data_contracts.receipts import Query, total_rho
from privsyn.data_contracts.tables import PROFILE_SCHEMA, Expectation, TableContract
from privsyn.errors import ContractError
from privsyn.loading import no_collection, postpone
from privsyn.run.step import Wide

USED_UP = Fraction(999_999, 1_000_000)
"""A stage's receipts cost at least this part of its budget; the rest is sigma rounded up to a float."""

FAULT = "This is a fault of the program or of a file changed from outside; nothing was released from it"

Failure = dict[str, str]

_LOADING = Lock()

ONCE = "once"
"""The last word of the names of our own classes of expectations, see :func:`_kind`."""

NOT_NULL = "expect_column_values_to_not_be_null"

BROKEN: dict[str, Callable[[Any], bool]] = {
    "outside": lambda count: count != 0,
    "unwanted_nulls": lambda count: count != 0,
    "type_matches": lambda matches: matches is not True,
}
"""When a row of a profile breaks PROFILE_EXPECTATIONS, by the profile's column."""


def check_table(contract: TableContract, table: pa.Table) -> None:
    """Raise ContractError unless ``table`` meets ``contract``: the whole table, or its profile if wide."""
    expected = PROFILE_SCHEMA if contract.wide else contract.schema
    failures = _schema_failures(contract, table, expected)
    if not failures and table.num_rows:
        failures = _run(contract.name, contract.expectations, table)
        if contract.wide:
            failures = [named for failure in failures for named in _by_attribute(failure, table)]
    if failures:
        what = "; ".join(f"{f['column']}: {f['expectation']}" for f in failures[:5])
        raise ContractError(
            f"the table {contract.name!r} breaks its contract ({what})",
            failures,
            FAULT,
        )


def checked_stream(contract: TableContract, wide: Wide) -> Iterator[pa.RecordBatch]:
    """Pass batches through, profile each, and check the contract before the stream ends.

    A writer that commits only after the last batch therefore never commits a table that fails.
    """
    profiles = []
    for batch in wide.batches:
        profiles.append(wide.profile([batch]))
        yield batch
    if not profiles:
        empty = pa.RecordBatch.from_pylist([], schema=wide.schema)
        profiles.append(wide.profile([empty]))
    check_table(contract, pa.concat_tables(profiles))


def prepare() -> None:
    """Load Great Expectations, so that the first check does not wait for it; any thread may call this at any time."""
    with _LOADING:
        _batch_definition()


def check_stage(stage: str, queries: Iterable[Query], budget: Fraction) -> None:
    """Raise ContractError unless the planned receipts cost the stage's exact budget: no more, and all but rounding."""
    planned = list(queries)
    spent = total_rho(planned)
    broken = {"within_budget": spent > budget, "budget_used": bool(planned) and spent < budget * USED_UP}
    failures = [{"table": "receipts", "column": stage, "expectation": name} for name, fails in broken.items() if fails]
    if failures:
        what = ", ".join(failure["expectation"] for failure in failures)
        raise ContractError(f"the plan of {stage!r} breaks its budget ({what})", failures, FAULT)


def _schema_failures(contract: TableContract, table: pa.Table, expected: pa.Schema | None) -> list[Failure]:
    if expected is None or table.schema.equals(expected):
        return []
    want, have = ({_field(f) for f in schema} for schema in (expected, table.schema))
    wrong = [(field, "schema: missing") for field in sorted(want - have)]
    wrong += [(field, "schema: not asked for") for field in sorted(have - want)]
    wrong = wrong or [("all", "schema: order of the columns")]
    return [{"table": contract.name, "column": field, "expectation": what} for field, what in wrong]


def _field(field: pa.Field) -> str:
    return f"{field.name} ({field.type}{'' if field.nullable else ', not null'})"


def _run(name: str, expectations: Iterable[Expectation], table: pa.Table) -> list[Failure]:
    """What ``table`` fails, in the expectations' order: nulls first, since they come first in every contract."""
    asked = tuple(expectations)
    nulls = [e.kwargs["column"] for e in asked if e.type == NOT_NULL and _has_nulls(table[e.kwargs["column"]])]
    failures = [{"table": name, "column": column, "expectation": NOT_NULL} for column in nulls]
    return failures + _run_suite(name, tuple(e for e in asked if e.type != NOT_NULL), table)


def _has_nulls(column: pa.ChunkedArray) -> bool:
    """Whether a value is missing or not a number."""
    return column.null_count > 0 or (pa.types.is_floating(column.type) and bool(pc.any(pc.is_nan(column)).as_py()))


def _run_suite(name: str, expectations: tuple[Expectation, ...], table: pa.Table) -> list[Failure]:
    """The outcomes of Great Expectations on the columns that the expectations name."""
    named = {c for e in expectations for c in (e.kwargs.get("column_list") or [e.kwargs["column"]])}
    frame = table.select([c for c in table.column_names if c in named]).to_pandas()
    prepare()
    result = (
        _batch_definition()
        .get_batch(batch_parameters={"dataframe": frame})
        .validate(_suite(name, expectations), result_format="BOOLEAN_ONLY")
    )
    failures = []
    for outcome in result.results:
        # An expectation that could not run reports success=False too, with the reason in exception_info.
        if not outcome.success:
            config = outcome.expectation_config
            column = config.kwargs.get("column") or ", ".join(config.kwargs.get("column_list", []))
            kind = str(config.type).removesuffix(f"_{ONCE}")
            failures.append({"table": name, "column": str(column), "expectation": kind})
    return failures


def _by_attribute(failure: Failure, profile: pa.Table) -> list[Failure]:
    """A failure of a profile, told of the wide table's own columns: one a column that breaks it."""
    measure = failure["column"]
    attributes = [r["column"] for r in profile.to_pylist() if measure in BROKEN and BROKEN[measure](r[measure])]
    return [
        {**failure, "column": name, "expectation": f"{measure}, {failure['expectation']}"}
        for name in dict.fromkeys(map(str, attributes))
    ] or [failure]


@lru_cache(maxsize=1)
def _gx() -> Any:
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    postpone("scipy.stats")  # for expectations about distributions, which no contract has
    with no_collection():
        import great_expectations

    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    return great_expectations


@lru_cache(maxsize=1)
def _batch_definition() -> Any:
    context = _gx().get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_pandas("tables").add_dataframe_asset("table")
    return asset.add_batch_definition_whole_dataframe("whole")


def _suite(name: str, expectations: tuple[Expectation, ...]) -> Any:
    gx = _gx()
    suite = gx.ExpectationSuite(name=name)
    for e in expectations:
        suite.add_expectation(_kind(e.type)(**e.kwargs))
    return suite


@cache
def _kind(type_: str) -> Any:
    """Great Expectations' class of this type, as one of ours that works out its configuration once.

    A check asks each expectation for its configuration some sixty times, and it is worked out each time: half of the
    check's time.  Ours never change.  The class has a name of its own, so that the original stays as it is.
    """
    from great_expectations.compatibility.pydantic import PrivateAttr

    name = "".join(part.capitalize() for part in type_.split("_"))
    base = getattr(_gx().expectations, name)

    def configuration(self: Any) -> Any:
        if self._worked_out is None:
            self._worked_out = base.configuration.fget(self)
        return self._worked_out

    own = {"__module__": __name__, "_worked_out": PrivateAttr(None), "configuration": property(configuration)}
    return type(base)(name + ONCE.title(), (base,), own)
