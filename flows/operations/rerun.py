"""Reproducing a release from its released folder alone: every step after the noise again, and every file compared.

Belongs here: taking the noisy tables out of the folder, running the other steps on them, comparing.  Does not belong
here: the steps (flows/steps.py), how one runs (flows/shell.py), what a folder holds (flows/publish.py).

Nothing private is needed, and nothing is left behind: no ledger, no private folder, no table.  The release steps are
not run: their noisy tables are taken as they are, and it is checked that what they asked follows from the tables before
them.  What is given (noisy tables, certificate) is compared with the manifest's hashes; what is made anew (all other
files) is compared with them too.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from data_contracts.artifacts import ArtifactRef, Kind, Zone
from data_contracts.certificate import Manifest
from data_contracts.spec import ReleaseSpec
from flows.checks import check_table
from flows.errors import ContractError, PrivsynError, RequestError
from flows.formats.described import files_in
from flows.ledger.ledger import Ledger
from flows.preflight import release_job
from flows.publish import fill, marginal_files
from flows.settings import Settings
from flows.shell import ReportProgress, Shell, StepRefs
from flows.step import ReleaseStep, Request, Step
from flows.storage.records import Records
from flows.storage.released_files import public_spec, read_certificate, read_manifest, release_folder
from flows.storage.store import Store
from flows.versions import versions
from tasks.noisy import receipts_from_table

FIELD = "RUN"

_UNFIT = (ValueError, LookupError, ArithmeticError, OSError, pa.ArrowException)
"""What code raises on tables that keep their contracts and yet are none that a release could hold."""


@dataclass(frozen=True)
class Compared:
    """One file of the manifest: whether it is on disk as the manifest says, and whether it was made so anew.

    ``made`` is None for what is given: the noisy tables and the certificate.
    """

    name: str
    on_disk: bool
    made: bool | None

    @property
    def agrees(self) -> bool:
        """Whether all that was looked at agrees with the manifest."""
        return self.on_disk and self.made is not False

    def words(self) -> str:
        """The outcome, for people."""
        if not self.on_disk:
            return "is missing or not the file of the manifest" + (
                "; made anew, it agrees" if self.made else "; made anew, it differs too" if self.made is False else ""
            )
        if self.made is None:
            return "agrees (given: nobody can draw it again)"
        return "agrees (made anew)" if self.made else "differs when it is made anew"


@dataclass(frozen=True)
class Rerun:
    """What reproducing a release showed.

    ``files``: every file of the manifest; ``unknown``: files of the folder that the manifest does not name;
    ``problems``: in words, what else does not agree or could not be made; ``versions``: package -> (then, here) where
    they differ; ``kept``: where the made files are, if they were asked for.
    """

    run: str
    files: tuple[Compared, ...]
    unknown: tuple[str, ...]
    problems: tuple[str, ...]
    versions: Mapping[str, tuple[str, str]]
    kept: Path | None = None

    @property
    def agrees(self) -> bool:
        """Whether the release was reproduced byte for byte."""
        return all(file.agrees for file in self.files) and not self.unknown and not self.problems


class _NoNoise:
    """Stands where a noise source belongs: a reproduction draws nothing."""

    private: ClassVar[bool] = True

    def draw(self, sigma: float, cells: int) -> NoReturn:
        raise TypeError("a reproduction draws no noise")


@dataclass
class _Again:
    """A release that is made again in a folder of its own, from the tables of ``folder``."""

    folder: Path
    manifest: Manifest
    shell: Shell
    done: dict[str, StepRefs] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def store(self) -> Store:
        """Where the tables are that are made here."""
        return self.shell.store

    def run(self) -> None:
        """Every step in its order: noisy tables are taken, postprocessing is done, private rows are left out."""
        for step in self.shell.steps:
            inputs = {name.split(".")[0]: self.done[name.split(".")[0]] for name in step.inputs}
            if isinstance(step, ReleaseStep):
                self.done[step.name] = self._taken(step)
                self._check_plan(step, inputs)
            elif step.kind is Kind.POSTPROCESS:
                self.done[step.name] = self.shell.execute(step, inputs)
            else:
                self.done[step.name] = self._absent(step)

    def _taken(self, step: ReleaseStep) -> StepRefs:
        """The step's noisy tables as the folder has them."""
        places = {table: file for file, table in marginal_files(s.name for s in self.shell.steps).items()}
        refs, key = {}, self.shell.keys[step.name]
        for name, contract in step.outputs.items():
            table = _read(self.folder / places[f"{step.name}.{name}"])
            check_table(contract, table)
            refs[name] = self.store.write_table(table, table.schema, name, step.name, key, Zone.RELEASED)
        return StepRefs(step=step.name, key=key, tables=refs)

    def _check_plan(self, step: ReleaseStep, inputs: Mapping[str, StepRefs]) -> None:
        """Whether what was asked is what the tables released before lead to."""
        try:
            receipts = receipts_from_table(self.store.read_table(self.done[step.name].tables["receipts"]))
        except _UNFIT as error:
            raise PrivsynError(f"the receipts of the step {step.title!r} hold no possible query: {error}", "") from None
        if self.shell.planned(step, inputs) != receipts:
            self.problems.append(f"what the step {step.title!r} asked does not follow from the tables before it")

    def _absent(self, step: Step) -> StepRefs:
        """Private tables are not here; that a step would read one is a fault of the step."""
        key = self.shell.keys[step.name]
        refs = {
            name: ArtifactRef(name=name, step=step.name, zone=Zone.PRIVATE, key=key, path="", check="")
            for name in step.outputs
        }
        return StepRefs(step=step.name, key=key, tables=refs)

    def publish(self) -> Path:
        """The folder, made anew: the given certificate, the versions of then."""
        certificate = read_certificate(self.folder)
        return self.store.publish(
            self.shell.run, lambda new: fill(new, self.shell, self.done, certificate, lambda: self.manifest.versions)
        )


def rerun(
    release: str,
    settings: Settings,
    keep: Path | None = None,
    report: ReportProgress = lambda step, done, total: None,
) -> Rerun:
    """Make a release again from its folder and compare every file with its manifest.

    ``release``: the folder, or a run's name in the released root; ``keep``: a folder that is not there yet, for the
    files that were made.  Needs nothing but the folder; leaves nothing but ``keep``.  Raises RequestError for what is
    no release, or of a form that this program does not know; whatever does not agree is in the result.
    """
    folder = release_folder(release, settings, FIELD)
    manifest = read_manifest(folder)
    spec = public_spec(manifest, FIELD)
    given = {*_given(spec), "certificate.json"}
    on_disk = files_in(folder)
    with _workplace(keep) as work:
        made, problems = _make(folder, manifest, spec, work, settings.threads, report)
        kept = None
        if keep is not None and made is not None:
            made.rename(keep)
            kept, made = keep, keep
        again = files_in(made) if made is not None else {}
    files = tuple(
        Compared(name, on_disk.get(name) == told, None if name in given else again.get(name) == told)
        for name, told in manifest.files.items()
    )
    unknown = tuple(sorted(set(on_disk) - set(manifest.files)))
    return Rerun(manifest.run, files, unknown, tuple(problems), _other_versions(manifest), kept)


def _make(
    folder: Path, manifest: Manifest, spec: ReleaseSpec, work: Path, threads: int, report: ReportProgress
) -> tuple[Path | None, list[str]]:
    """The folder made anew (None where that failed), and what did not agree on the way, in words."""
    again = _Again(folder, manifest, _shell(manifest, spec, work, threads, report))
    try:
        again.run()
        return again.publish(), again.problems
    except ContractError as error:
        return None, [*again.problems, f"the release cannot be made again: {error.problem}"]
    except RequestError as error:
        return None, [*again.problems, error.problem]
    except PrivsynError as error:
        return None, [*again.problems, f"the release cannot be made again: {error.problem}"]
    except _UNFIT as error:  # nothing of it is private: only the folder was read
        return None, [*again.problems, f"the release cannot be made again from its noisy tables: {error!r}"]


def _shell(manifest: Manifest, spec: ReleaseSpec, work: Path, threads: int, report: ReportProgress) -> Shell:
    """A shell over a workplace of its own, with an empty ledger and no noise: only free steps can run in it."""
    steps = release_job(spec).steps
    keys = {step.name: hashlib.sha256(step.name.encode()).hexdigest() for step in steps}
    store = Store(work / "private", work / "released", spec.dataset)
    records, ledger = Records(work / "private", spec.dataset), Ledger(work / "ledger.sqlite")
    request = Request(spec, tuple(manifest.column_order), _no_rows, threads)
    return Shell(request, keys, manifest.run, store, records, ledger, _NoNoise(), report, steps=steps)


def _no_rows() -> Iterator[pa.RecordBatch]:
    raise TypeError("a reproduction has no private rows")


def _given(spec: ReleaseSpec) -> set[str]:
    """The released files that hold noise: they are taken as they are."""
    steps = release_job(spec).steps
    noisy = {step.name for step in steps if isinstance(step, ReleaseStep)}
    tables = marginal_files(step.name for step in steps)
    return {file for file, table in tables.items() if table.split(".")[0] in noisy}


def _read(path: Path) -> pa.Table:
    try:
        with pq.ParquetFile(path) as file:
            return file.read()
    except (OSError, EOFError, ValueError, KeyError, pa.ArrowException):
        name = f"{path.parent.name}/{path.name}"
        raise RequestError(f"{name} is missing or no whole Parquet file", "Get the release again", FIELD) from None


@contextmanager
def _workplace(keep: Path | None) -> Iterator[Path]:
    """A folder that is gone afterwards: beside ``keep``, so that what is kept is moved, else where the system says."""
    if keep is not None and (keep.exists() or not keep.absolute().parent.is_dir()):
        raise RequestError(f"{keep} exists already, or its folder does not", "Name a new folder", "--output")
    try:
        with tempfile.TemporaryDirectory(prefix=".rerun-", dir=keep.absolute().parent if keep else None) as name:
            yield Path(name)
    except OSError as error:
        raise PrivsynError(f"the files could not be written: {error.strerror}", "Free some space") from None


def _other_versions(manifest: Manifest) -> dict[str, tuple[str, str]]:
    """Package -> (version then, version here), where they differ."""
    then, here = manifest.versions, versions()
    names = sorted({*then, *here})
    return {n: (then.get(n, "none"), here.get(n, "none")) for n in names if then.get(n) != here.get(n)}
