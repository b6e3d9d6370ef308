"""Reproducing a release from its released folder alone: run every step after the noise again, and compare every file.

A reproduction needs nothing private and leaves nothing behind: no ledger, no private folder, no table.  It does not run
the release steps: it takes their noisy tables as they are, and checks that their queries follow from earlier tables.
It compares every file of the folder with the manifest's hashes, and every file that it makes again, which noisy tables
and certificate cannot be.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from privsyn.base.errors import PrivsynError, RequestError
from privsyn.base.settings import Settings
from privsyn.base.wording import API
from privsyn.data_contracts.artifacts import ArtifactRef, StepKind, Zone
from privsyn.data_contracts.certificate import Manifest
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.execute import Run
from privsyn.engine.inputs import PrivateAccess
from privsyn.engine.step import ReleaseStep, Step, list_published_files, release_steps, run_steps
from privsyn.engine.step_tables import StepRefs, check_table
from privsyn.ledgers.ledger import Ledger
from privsyn.pipelines.registry import plan_release
from privsyn.publish.certificate_of_run import list_versions
from privsyn.publish.folder import DESCRIPTIONS, fill
from privsyn.publish.formats.tables import list_files
from privsyn.storage.named_files import check_file
from privsyn.storage.records import Records
from privsyn.storage.released_files import find_release, read_certificate, read_manifest, read_public_spec
from privsyn.storage.store import Store
from privsyn.tasks.estimation.noisy import read_receipts

FIELD = "rerun.release"
PRIOR = "rerun.prior"

PACKAGE = "privsyn-flows"
"""This program's own name among the versions of a manifest."""

_UNFIT = (ValueError, LookupError, ArithmeticError, OSError, pa.ArrowException)
"""Errors that steps raise on tables that meet their contracts and yet could not be a release's."""


@dataclass(frozen=True)
class FileComparison:
    """One file of the manifest: whether the file on disk agrees with it, and whether the file made again does.

    ``reproduced`` is None for files that nobody can make again: noisy tables and the certificate.  ``reworded``:
    whether it is a description that this version words differently.
    """

    name: str
    on_disk: bool
    reproduced: bool | None
    reworded: bool = False

    @property
    def agrees(self) -> bool:
        """Whether the file on disk, and the file made again if any, agree with the manifest."""
        return self.on_disk and self.reproduced is not False

    def words(self) -> str:
        """Return the outcome in words."""
        if not self.on_disk:
            return "is missing or not the file of the manifest" + (
                "; made anew, it agrees"
                if self.reproduced
                else "; made anew, it differs too"
                if self.reproduced is False
                else ""
            )
        if self.reproduced is None:
            return "agrees (given: nobody can draw it again)"
        if self.reworded:
            return "is written differently by this version"
        return "agrees (made anew)" if self.reproduced else "differs when it is made anew"


@dataclass(frozen=True)
class Rerun:
    """The result of reproducing a release; printing it shows what does not agree.

    ``files``: every file of the manifest.  ``unknown``: files of the folder that the manifest does not name.
    ``problems``: sentences on everything else that does not agree or could not be made.  ``versions``: package ->
    (version of the release, version here) where they differ.  ``folder``: the folder with the files made again, None
    unless the caller asked for it.  Privacy: all of it is public.
    """

    run: str
    files: tuple[FileComparison, ...]
    unknown: tuple[str, ...]
    problems: tuple[str, ...]
    versions: Mapping[str, tuple[str, str]]
    folder: Path | None = None

    @property
    def agrees(self) -> bool:
        """Whether the release was reproduced byte for byte."""
        return self.data_agree and not self.reworded

    @property
    def data_agree(self) -> bool:
        """Whether all was reproduced byte for byte, except descriptions that another version wrote in other words."""
        return all(file.agrees or file.reworded for file in self.files) and not self.unknown and not self.problems

    @property
    def reworded(self) -> tuple[str, ...]:
        """The descriptions that this version writes differently from the one that made the release."""
        return tuple(file.name for file in self.files if file.reworded)

    def __repr__(self) -> str:
        agreeing = sum(file.agrees for file in self.files)
        verdict = "agrees" if self.agrees else "agrees in its data" if self.data_agree else "does NOT agree"
        wrong = (*(f"{f.name} {f.words()}" for f in self.files if not f.agrees), *self.unknown, *self.problems)
        return "\n".join((f"<Rerun of {self.run} {verdict}: {agreeing} of {len(self.files)} files>", *wrong))


class _RefusingNoise:
    """The noise source of a reproduction, which draws nothing; it counts as private because the release's noise did."""

    private: ClassVar[bool] = True

    def draw(self, sigma: float, cells: int) -> NoReturn:
        raise TypeError("a reproduction draws no noise")


@dataclass
class _Reproduction:
    """One reproduction: a release made again in its own store, from the released tables of ``folder``."""

    folder: Path
    manifest: Manifest
    remade: Run
    refs: dict[str, StepRefs] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Run every step in order: copy noisy tables, run post-processing, skip private tables."""
        self.refs = run_steps(self.remade.steps, self._step)

    def _step(self, step: Step, inputs: Mapping[str, StepRefs]) -> StepRefs:
        if isinstance(step, ReleaseStep):
            noisy = self._copy_noisy_tables(step)
            self._check_plan(step, noisy, inputs)
            return noisy
        return (
            self.remade.execute(step, inputs) if step.kind is StepKind.POSTPROCESS else self._refuse_private_step(step)
        )

    def _copy_noisy_tables(self, step: ReleaseStep) -> StepRefs:
        refs, key, store = {}, self.remade.keys[step.name], self.remade.store
        for name, contract in step.outputs.items():
            table = _read(self.folder / step.published[name].name)
            check_table(contract, table)
            refs[name] = store.write_table(table, table.schema, name, step.name, key, Zone.RELEASED)
        return StepRefs(step=step.name, key=key, tables=refs)

    def _check_plan(self, step: ReleaseStep, noisy: StepRefs, inputs: Mapping[str, StepRefs]) -> None:
        """Record a problem unless earlier released tables lead to the queries in the receipts."""
        try:
            receipts = read_receipts(self.remade.store.read_table(noisy.tables["receipts"]))
        except _UNFIT as error:
            raise PrivsynError(f"the receipts of the step {step.title!r} hold no possible query: {error}", "") from None
        if self.remade.plan_queries(step, inputs) != receipts:
            self.problems.append(f"what the step {step.title!r} asked does not follow from the tables before it")

    def _refuse_private_step(self, step: Step) -> StepRefs:
        """Refuse references to private tables: a reproduction has none, so a step that reads one is wrong."""
        key = self.remade.keys[step.name]
        refs = {
            name: ArtifactRef(name=name, step=step.name, zone=Zone.PRIVATE, key=key, path="", check="")
            for name in step.outputs
        }
        return StepRefs(step=step.name, key=key, tables=refs)

    def publish(self) -> Path:
        """Publish the folder again, with the released certificate and the versions that made the release."""
        certificate = read_certificate(self.folder)
        return self.remade.store.released.publish(
            self.remade.name, lambda new: fill(new, self.remade, self.refs, certificate, lambda: self.manifest.versions)
        )


def rerun(
    release: str,
    settings: Settings,
    keep: Path | None = None,
    prior: Path | None = None,
) -> Rerun:
    """Make a release again from its folder and compare every file with its manifest.

    ``release``: the folder, or a run's name in the released root.  ``keep``: a folder that does not exist yet, for the
    files made again.  ``prior``: the file of the release's public prior, or the folder of the release that served as
    prior.  Needs nothing else, and leaves only ``keep``.  Raises RequestError if ``release`` is not a release of a
    known form, or if ``prior`` does not fit it; other differences are in the result.
    """
    folder = find_release(release, settings, FIELD)
    manifest = read_manifest(folder)
    spec = _add_prior(read_public_spec(manifest, FIELD), prior)
    noisy = {*list_published_files(release_steps(plan_release(spec).steps)), "certificate.json"}
    on_disk = list_files(folder)
    with _open_workplace(keep) as work:
        remade, problems = _make(folder, manifest, spec, work, settings.threads)
        if keep is not None and remade is not None:
            remade = remade.rename(keep)
        reproduced = list_files(remade) if remade is not None else {}
    released, current = manifest.versions, list_versions()
    names = sorted({*released, *current})
    versions = {
        n: (released.get(n, "none"), current.get(n, "none")) for n in names if released.get(n) != current.get(n)
    }
    files = tuple(
        FileComparison(name, on_disk.get(name) == listed, None if name in noisy else reproduced.get(name) == listed)
        for name, listed in manifest.files.items()
    )
    unknown = tuple(sorted(set(on_disk) - set(manifest.files)))
    if PACKAGE in versions and not unknown and not problems:
        files = _mark_reworded(files, {*reproduced} & DESCRIPTIONS)
    return Rerun(manifest.run, files, unknown, tuple(problems), versions, remade if keep else None)


def _mark_reworded(files: tuple[FileComparison, ...], descriptions: Collection[str]) -> tuple[FileComparison, ...]:
    """Return the files, with differing descriptions marked as reworded if nothing else differs."""
    differing = [file for file in files if not file.agrees]
    if not all(file.on_disk and file.name in descriptions for file in differing):
        return files
    return tuple(replace(file, reworded=not file.agrees) for file in files)


def _add_prior(spec: ReleaseSpec, file: Path | None) -> ReleaseSpec:
    """Return the released spec with the place of its prior's file, which no released folder names."""
    if spec.prior is None:
        if file is not None:
            raise RequestError("is named, but the release had no public prior", "Leave it out", PRIOR)
        return spec
    if file is None:
        problem = (
            f"the release had a public prior (SHA-256 {spec.prior.sha256[:12]}...), whose file is not in its folder"
        )
        raise RequestError(problem, "Name the file", PRIOR)
    prior = spec.prior.at(str(file), release=file.is_dir())
    try:
        check_file(prior)
    except RequestError:
        problem = f"is not the public prior of the release, the file with the SHA-256 {prior.sha256[:12]}..."
        cure = "Name that file, or the folder of a release whose synthetic.parquet or synthetic.csv it is"
        raise RequestError(problem, cure, PRIOR) from None
    return spec.with_prior(prior)


def _make(
    folder: Path, manifest: Manifest, spec: ReleaseSpec, work: Path, threads: int
) -> tuple[Path | None, list[str]]:
    """Return the folder made again (None if that failed), and sentences on differences found meanwhile."""
    plan = plan_release(spec, column_order=tuple(manifest.column_order))
    plan.check()
    remade = Run(
        plan=replace(plan, request=replace(plan.request, threads=threads)),
        private=PrivateAccess(_yield_no_rows),
        keys={step.name: hashlib.sha256(step.name.encode()).hexdigest() for step in plan.steps},
        name=manifest.run,
        store=Store(work / "private", work / "released", spec.dataset),
        records=Records(work / "private", spec.dataset),
        ledger=Ledger(work / "ledger.sqlite"),
        noise=_RefusingNoise(),
    )  # over its own folder, with an empty ledger and no noise: only post-processing can run in it
    reproduction = _Reproduction(folder, manifest, remade)
    try:
        reproduction.run()
        return reproduction.publish(), reproduction.problems
    except PrivsynError as error:
        problem = API.text(error.problem)
        told = problem if isinstance(error, RequestError) else f"the release cannot be made again: {problem}"
        return None, [*reproduction.problems, told]
    except _UNFIT as error:  # nothing of it is private: only the folder was read
        return None, [*reproduction.problems, f"the release cannot be made again from its noisy tables: {error!r}"]


def _yield_no_rows(repairs: object = None) -> Iterator[pa.RecordBatch]:
    raise TypeError("a reproduction has no private rows")


def _read(path: Path) -> pa.Table:
    try:
        with pq.ParquetFile(path) as file:
            return file.read()
    except (OSError, EOFError, ValueError, KeyError, pa.ArrowException):
        name = f"{path.parent.name}/{path.name}"
        raise RequestError(f"{name} is missing or not a whole Parquet file", "Get the release again", FIELD) from None


@contextmanager
def _open_workplace(keep: Path | None) -> Iterator[Path]:
    """Make a temporary folder: beside ``keep``, so that the result can be renamed to it, else the system's."""
    if keep is not None and (keep.exists() or not keep.absolute().parent.is_dir()):
        raise RequestError(f"{keep} exists already, or its folder does not", "Name a new folder", "rerun.keep")
    try:
        with tempfile.TemporaryDirectory(prefix=".rerun-", dir=keep.absolute().parent if keep else None) as name:
            yield Path(name)
    except OSError as error:
        problem = f"the files cannot be written: {error.strerror}"
        if keep is None:
            raise PrivsynError(problem, "Free some space") from None
        raise RequestError(problem, "Name a folder that can be written, or free some space", "rerun.keep") from None
