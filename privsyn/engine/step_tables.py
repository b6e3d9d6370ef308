"""The tables of a step on disk: checked against their contracts, written whole, recorded last, and found again.

A contract is a list of expectations of Great Expectations, which validates every table of a run in Prefect.  Arrow can
also decide each kind of expectation in our contracts, in microseconds, while Great Expectations takes seconds to load.
So a release in its own process asks Arrow first, and Great Expectations only if Arrow doubts.  A table passes only if
Arrow finds that all holds, so neither accepts what the other refuses; tests compare their answers.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict

from privsyn.base.errors import ContractError
from privsyn.base.interrupts import watch_interrupts
from privsyn.base.process_memory import pause_gc
from privsyn.data_contracts.artifacts import ArtifactRef, StepKind
from privsyn.data_contracts.receipts import Query, sum_rho
from privsyn.data_contracts.tables import PROFILE_SCHEMA, Expectation, TableContract
from privsyn.engine.step import Output, RowStream, Step
from privsyn.storage.records import Records
from privsyn.storage.store import Store

USED_UP = Fraction(999_999, 1_000_000)
"""Least part of a stage's budget that its receipts cost; the rest is lost by rounding sigma up to a float."""

_ROUNDING = 1e-9
"""Relative tolerance between a sum of floats and a sum of fractions."""

FAULT = "This is a fault of the program or of a file changed from outside; nothing was released from it"

Failure = dict[str, str]


class StepRefs(BaseModel):
    """The result of a step: references to its tables.  Prefect passes, stores and shows these."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: str
    key: str
    tables: dict[str, ArtifactRef]


def write_outputs(
    step: Step,
    outputs: Mapping[str, Output],
    key: str,
    store: Store,
    records: Records,
    *,
    validate: Validate | None = None,
    verdicts: Sequence[ContractVerdict] = (),
) -> StepRefs:
    """Check every output against its contract, write it atomically, and record the whole step last.

    ``key``: the step's lineage key.  ``validate``: makes the verdicts, which are kept beside the step's record, after
    ``verdicts``.  Raises ContractError, having recorded nothing.
    """
    refs, all_verdicts = {}, list(verdicts)
    for name, contract in step.outputs.items():
        output = outputs[name]
        if callable(output):
            output = output()
        parts: tuple[int, ...] = ()
        part_files: list[Path] = []
        schema = output.schema
        if isinstance(output, RowStream):
            rows, parts = watch_interrupts(check_stream(contract, output, validate, all_verdicts)), output.parts
            if output.made:
                profile = pa.concat_tables([part.profile for part in output.made])
                all_verdicts += check_table(contract, profile, validate)
                part_files = [Path(part.path) for part in output.made]
        else:
            all_verdicts += check_table(contract, output, validate)
            rows = output
        # Post-processing can be repeated if its output is lost; noise and counts cannot.
        for_good = step.kind is not StepKind.POSTPROCESS
        refs[name] = store.write_table(
            rows, schema, name, step.name, key, contract.zone, parts=parts, part_files=part_files, for_good=for_good
        )
    if validate is not None:
        records.save(f"contracts-{key}", {"step": step.name, "verdicts": [asdict(verdict) for verdict in all_verdicts]})
    done = StepRefs(step=step.name, key=key, tables=refs)
    records.save(format_record_name(key), done.model_dump(mode="json"))
    return done


def read_recorded_outputs(
    step: Step, key: str, store: Store, records: Records, dispensable: Collection[str] = ()
) -> StepRefs | None:
    """Return the step's tables if all are on disk, unchanged since they passed their contracts.

    ``dispensable``: tables that may be missing.  Raises PrivsynError for a record of other tables than the step's.
    """
    refs = records.load_as(format_record_name(key), StepRefs)
    if refs is None:
        return None
    if refs.tables.keys() != step.outputs.keys():
        raise records.damaged(format_record_name(key))
    return refs if all(store.verify(ref) for name, ref in refs.tables.items() if name not in dispensable) else None


def read_verdicts(key: str, records: Records) -> list[ContractVerdict]:
    """Return the verdicts on the step's tables from when they were written, table by table; empty if not kept."""
    record = records.load(f"contracts-{key}")
    return [ContractVerdict(**verdict) for verdict in record["verdicts"]] if record else []


def format_record_name(key: str) -> str:
    """Return the record's name for the step with this lineage key."""
    return f"step-{key}"


@dataclass(frozen=True)
class ContractVerdict:
    """Whether one expectation of a contract held.  Observed values and numbers of rows are private and left out."""

    table: str
    column: str
    expectation: str
    held: bool


Validate = Callable[[str, Sequence[Expectation], pa.Table], list[ContractVerdict]]
"""Called with the table's name, its expectations and the table; returns a verdict on each, in their order."""

PROFILE_FAILURES: dict[str, Callable[[Any], bool]] = {
    "outside": lambda count: count != 0,
    "unwanted_nulls": lambda count: count != 0,
    "type_matches": lambda matches: matches is not True,
}
"""A profile's column -> whether a value in it breaks PROFILE_EXPECTATIONS."""


def check_table(contract: TableContract, table: pa.Table, validate: Validate | None = None) -> list[ContractVerdict]:
    """Check the table (or its profile, if wide) against ``contract``, and return a verdict on each expectation.

    ``validate``: makes the verdicts; None: :func:`validate_quickly`.  An empty table meets every expectation without a
    check.  Raises ContractError for another schema or a broken expectation.
    """
    expected = PROFILE_SCHEMA if contract.wide else contract.schema
    failures, verdicts = _check_schema(contract, table, expected), []
    if not failures and table.num_rows:
        verdicts = (validate or validate_quickly)(contract.name, contract.expectations, table)
        broken = [asdict(verdict) for verdict in verdicts if not verdict.held]
        failures = [{fact: verdict[fact] for fact in ("table", "column", "expectation")} for verdict in broken]
        if contract.wide:
            failures = [named for failure in failures for named in _group_by_attribute(failure, table)]
    if failures:
        breaches = "; ".join(f"{f['column']}: {f['expectation']}" for f in failures[:5])
        raise ContractError(f"the table {contract.name!r} breaks its contract ({breaches})", failures, FAULT)
    return verdicts


def check_stream(
    contract: TableContract,
    wide: RowStream,
    validate: Validate | None = None,
    verdicts: list[ContractVerdict] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Pass batches through, profile each, and check the contract before the stream ends.

    So a writer that commits only after the last batch never commits a table that fails.  The verdicts are appended to
    ``verdicts``.
    """
    profiles = []
    for batch in wide.batches:
        profiles.append(wide.profile([batch]))
        yield batch
    if not profiles:
        empty = pa.RecordBatch.from_pylist([], schema=wide.schema)
        profiles.append(wide.profile([empty]))
    new_verdicts = check_table(contract, pa.concat_tables(profiles), validate)
    if verdicts is not None:
        verdicts.extend(new_verdicts)


def check_stage(stage: str, queries: Iterable[Query], budget: Fraction) -> None:
    """Raise ContractError unless the planned receipts use the stage's exact budget: no more, and all but rounding."""
    planned = list(queries)
    spent = sum_rho(planned)
    broken = {"within_budget": spent > budget, "budget_used": bool(planned) and spent < budget * USED_UP}
    failures = [{"table": "receipts", "column": stage, "expectation": name} for name, fails in broken.items() if fails]
    if failures:
        breaches = ", ".join(failure["expectation"] for failure in failures)
        raise ContractError(f"the plan of {stage!r} breaks its budget ({breaches})", failures, FAULT)


def _check_schema(contract: TableContract, table: pa.Table, expected: pa.Schema | None) -> list[Failure]:
    if expected is None or table.schema.equals(expected):
        return []
    want, have = (
        {f"{f.name} ({f.type}{'' if f.nullable else ', not null'})" for f in schema}
        for schema in (expected, table.schema)
    )
    wrong = [(field, "schema: missing") for field in sorted(want - have)]
    wrong += [(field, "schema: not asked for") for field in sorted(have - want)]
    wrong = wrong or [("all", "schema: order of the columns")]
    return [{"table": contract.name, "column": field, "expectation": expectation} for field, expectation in wrong]


def validate_quickly(name: str, expectations: Sequence[Expectation], table: pa.Table) -> list[ContractVerdict]:
    """Return Arrow's verdicts; Great Expectations decides the expectations that Arrow doubts."""
    sure = [surely_holds(e, table) for e in expectations]
    in_doubt = [e for e, holds in zip(expectations, sure, strict=True) if not holds]
    outcomes = iter(_ask_great_expectations(in_doubt, table) if in_doubt else [])
    return _give_verdicts(name, expectations, sure, [holds or next(outcomes) for holds in sure])


def validate_with_great_expectations(
    name: str, expectations: Sequence[Expectation], table: pa.Table
) -> list[ContractVerdict]:
    """Return Great Expectations' verdicts on all expectations, combined with Arrow, which is stricter."""
    sure = [surely_holds(e, table) for e in expectations]
    return _give_verdicts(name, expectations, sure, _ask_great_expectations(expectations, table))


def _give_verdicts(
    name: str, expectations: Sequence[Expectation], arrow_verdicts: Sequence[bool], library_verdicts: Sequence[bool]
) -> list[ContractVerdict]:
    """Return Great Expectations' verdicts; an expectation that only Arrow finds broken (skipped nulls) is broken."""
    final = arrow_verdicts if all(library_verdicts) else library_verdicts
    return [_make_verdict(name, e, held=holds) for e, holds in zip(expectations, final, strict=True)]


def validate_receipts(stage: str, queries: Sequence[Query], budget: Fraction) -> list[ContractVerdict]:
    """Return the verdict of Great Expectations on the total cost of a stage's receipts, against its budget.

    Prices are floats, so up to rounding; :func:`check_stage` is exact, runs first, and blocks.
    """
    prices = pa.table({"rho": pa.array([float(query.rho) for query in queries], pa.float64())})
    least, most = float(budget * USED_UP) * (1 - _ROUNDING), float(budget) * (1 + _ROUNDING)
    total = Expectation("expect_column_sum_to_be_between", {"column": "rho", "min_value": least, "max_value": most})
    return [_make_verdict(f"receipts of {stage}", total, held=_ask_great_expectations([total], prices)[0])]


def surely_holds(expectation: Expectation, table: pa.Table) -> bool:
    """Return whether Arrow finds that the expectation holds.

    False also for an unknown kind or argument.
    """
    answer, arguments = _ANSWERS.get(expectation.type, (None, frozenset()))
    return answer is not None and expectation.kwargs.keys() <= arguments and answer(table, **expectation.kwargs)


def _has_no_nulls(table: pa.Table, column: str) -> bool:
    values = table[column]
    return values.null_count == 0 and not (
        pa.types.is_floating(values.type) and bool(pc.any(pc.is_nan(values)).as_py())
    )


def _is_unique(table: pa.Table, column: str) -> bool:
    return _has_no_nulls(table, column) and int(pc.count_distinct(table[column]).as_py()) == table.num_rows


def _are_unique_together(table: pa.Table, column_list: Sequence[str]) -> bool:
    columns = list(column_list)
    alone = all(_has_no_nulls(table, column) for column in columns)
    return alone and table.group_by(columns).aggregate([]).num_rows == table.num_rows


def _is_extreme_between(
    extreme: Callable[[pa.ChunkedArray], pa.Scalar],
    table: pa.Table,
    column: str,
    min_value: Any = None,
    max_value: Any = None,
    *,
    strict_min: bool = False,
) -> bool:
    value = extreme(table[column]).as_py() if _has_no_nulls(table, column) else None
    if value is None:
        return False
    high_enough = min_value is None or (value > min_value if strict_min else value >= min_value)
    return high_enough and (max_value is None or value <= max_value)


_RANGE = frozenset({"column", "min_value", "max_value", "strict_min"})
_ANSWERS: dict[str, tuple[Callable[..., bool], frozenset[str]]] = {
    "expect_column_values_to_not_be_null": (_has_no_nulls, frozenset({"column"})),
    "expect_column_values_to_be_unique": (_is_unique, frozenset({"column"})),
    "expect_compound_columns_to_be_unique": (_are_unique_together, frozenset({"column_list"})),
    "expect_column_min_to_be_between": (partial(_is_extreme_between, pc.min), _RANGE),
    "expect_column_max_to_be_between": (partial(_is_extreme_between, pc.max), _RANGE),
}
"""Arrow's checks: kind of expectation -> function, and the arguments that it accepts."""


def _ask_great_expectations(expectations: Sequence[Expectation], table: pa.Table) -> list[bool]:
    """Return whether each expectation holds, by Great Expectations, on the columns that they name.

    BOOLEAN_ONLY: observed values and counts of elements are private, and are neither returned nor kept.
    """
    named = {c for e in expectations for c in (e.kwargs.get("column_list") or [e.kwargs["column"]])}
    frame = table.select([c for c in table.column_names if c in named]).to_pandas()
    gx, whole = _get_context(), _build_batch_definition()
    suite = gx.ExpectationSuite(name="contract")
    for position, e in enumerate(expectations):
        kind = getattr(gx.expectations, "".join(part.capitalize() for part in e.type.split("_")))
        suite.add_expectation(kind(**e.kwargs, meta={"position": position}))
    batch = whole.get_batch(batch_parameters={"dataframe": frame})
    outcomes = batch.validate(suite, result_format="BOOLEAN_ONLY").results
    # An expectation that could not run also reports success=False, with the reason in exception_info.
    held = {o.expectation_config.meta["position"]: bool(o.success) for o in outcomes}
    return [held.get(position, False) for position in range(len(expectations))]


def _make_verdict(name: str, expectation: Expectation, *, held: bool) -> ContractVerdict:
    column = expectation.kwargs.get("column") or ", ".join(expectation.kwargs.get("column_list", []))
    return ContractVerdict(table=name, column=str(column), expectation=expectation.type, held=held)


def _group_by_attribute(failure: Failure, profile: pa.Table) -> list[Failure]:
    """Return a profile's failure as failures of the wide table's own columns, one for each column that breaks it."""
    measure = failure["column"]
    breaks = PROFILE_FAILURES.get(measure)
    attributes = [r["column"] for r in profile.to_pylist() if breaks is not None and breaks(r[measure])]
    return [
        {**failure, "column": name, "expectation": f"{measure}, {failure['expectation']}"}
        for name in dict.fromkeys(map(str, attributes))
    ] or [failure]


@lru_cache(maxsize=1)
def _get_context() -> Any:
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    with pause_gc():
        import great_expectations

    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    return great_expectations


@lru_cache(maxsize=1)
def _build_batch_definition() -> Any:
    context = _get_context().get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_pandas("tables").add_dataframe_asset("table")
    return asset.add_batch_definition_whole_dataframe("whole")
