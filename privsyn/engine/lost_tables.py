"""Paid noisy tables that are lost here: they are restored from released folders, which hold the same bytes.

A private folder copied to another path also has them, under old paths in its records: these are found first.  A
released folder has each noisy table byte for byte, with its SHA-256 in the manifest.  A restored table is already
released, so nothing is drawn, charged or read from private rows for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from privsyn.base.errors import PrivsynError
from privsyn.data_contracts.artifacts import ArtifactRef
from privsyn.engine.execute import Run
from privsyn.engine.step import ReleaseStep
from privsyn.engine.step_tables import StepRefs, format_record_name, write_outputs
from privsyn.storage.records import read_note
from privsyn.storage.released_files import read_manifest_if_readable


def restore_lost_tables(run: Run) -> list[str]:
    """Restore the run's paid noisy tables that are missing or changed; return their steps.

    A table that no released folder holds whole stays lost.  A table that is at its place under this root was not lost.
    """
    lost = [step for step in run.list_lost_steps() if not _find_here(run, step)]
    return [step.name for step in lost if any(_restore(run, step, tables) for tables in _list_copies(run, step))]


def _find_here(run: Run, step: ReleaseStep) -> bool:
    """Record the step's tables at their places under this root; False if they are not whole there."""
    recorded = _read_record(run, step)
    if recorded is None:
        return False
    refs = {name: run.store.place_here(ref, run.dataset) for name, ref in recorded.tables.items()}
    return _record(run, step, refs)


def _read_record(run: Run, step: ReleaseStep) -> StepRefs | None:
    try:
        return run.records.load_as(format_record_name(run.keys[step.name]), StepRefs)
    except PrivsynError:
        return None


def _record(run: Run, step: ReleaseStep, refs: Mapping[str, ArtifactRef]) -> bool:
    """Record the tables if they are the ones that the step wrote when its noise was drawn; return whether they are."""
    key = run.keys[step.name]
    if refs.keys() != step.outputs.keys() or not all(run.store.verify(ref) for ref in refs.values()):
        return False
    done = StepRefs(step=step.name, key=key, tables=dict(refs))
    run.records.save(format_record_name(key), done.model_dump(mode="json"))
    return True


def _list_copies(run: Run, step: ReleaseStep) -> Iterator[Mapping[str, bytes]]:
    """Yield the step's tables from its runs' released folders, each checked against the manifest."""
    for folder in _list_folders(run, step):
        manifest = read_manifest_if_readable(folder)
        if manifest is None or not manifest.differentially_private or manifest.run != folder.name:
            continue
        tables = {}
        for name in step.outputs:
            file = step.published[name].name if name in step.published else ""
            content = _read_plain_file(folder / file) if file in manifest.files else None
            if content is not None and hashlib.sha256(content).hexdigest() == manifest.files[file].sha256:
                tables[name] = content
        if tables.keys() == step.outputs.keys():
            yield tables


def _read_plain_file(path: Path) -> bytes | None:
    try:
        return None if path.is_symlink() else path.read_bytes()
    except OSError:
        return None


def _list_folders(run: Run, step: ReleaseStep) -> list[Path]:
    """Return the released folders of runs that share the step's noise, as named by the ledger and private notes."""
    key, roots = run.keys[step.name], {run.name: run.store.released_root}
    for note in sorted((run.store.private_root / "runs").glob("*/run.json")):
        keys = read_note(note).get("keys")
        if isinstance(keys, Mapping) and keys.get(step.name) == key:
            roots[note.parent.name] = run.store.released_root
    folders = [root / name for name, root in roots.items()]
    for entry in run.ledger.entries(run.dataset):
        if entry.event == "reserve" and (entry.step, entry.key) == (step.name, key):
            noted = entry.detail.get("released_root", run.store.released_root)
            folders += [run.store.released_root / entry.run, Path(noted) / entry.run]
    return list(dict.fromkeys(folders))


def _restore(run: Run, step: ReleaseStep, tables: Mapping[str, bytes]) -> bool:
    """Put the tables in their places; False if they differ from those recorded at the draw."""
    recorded = _read_record(run, step)
    if recorded is None:
        return _write_anew(run, step, tables)
    refs = {name: run.store.put_back(ref, tables[name]) for name, ref in recorded.tables.items() if name in tables}
    return _record(run, step, refs)


def _write_anew(run: Run, step: ReleaseStep, tables: Mapping[str, bytes]) -> bool:
    """Write and record tables without a record; only the manifest and the step's contract vouch for them."""
    try:
        outputs = {name: pq.read_table(pa.BufferReader(content)) for name, content in tables.items()}
        write_outputs(step, outputs, run.keys[step.name], run.store, run.records, validate=run.validate)
    except (PrivsynError, pa.ArrowException, ValueError):
        return False
    return run.is_whole(step)
