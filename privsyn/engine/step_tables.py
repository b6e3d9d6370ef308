"""The tables of a step on disk: checked, written whole, recorded last, and found again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from privsyn.base.interrupts import watch_interrupts
from privsyn.data_contracts.artifacts import ArtifactRef, StepKind
from privsyn.engine.contract_checks import ContractVerdict, Validate, check_stream, check_table
from privsyn.engine.step import Output, RowStream, Step
from privsyn.storage.records import Records
from privsyn.storage.store import Store


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
        if isinstance(output, RowStream):
            rows, schema, parts = (
                watch_interrupts(check_stream(contract, output, validate, all_verdicts)),
                output.schema,
                output.parts,
            )
            if output.made:
                all_verdicts += check_table(
                    contract, pa.concat_tables([part.profile for part in output.made]), validate
                )
                part_files = [Path(part.path) for part in output.made]
        else:
            all_verdicts += check_table(contract, output, validate)
            rows, schema = output, output.schema
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
