"""The draw that a release continues or begins: its run, and the generation of its noise.

Releases of earlier versions are not drawn again without the caller's explicit request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.counting.encoded_parts import encode_part
from privsyn.counting.engine import Make, Partition, RowWork, list_parts
from privsyn.data_contracts.artifacts import StepKind
from privsyn.data_contracts.linked_tables import list_described_columns
from privsyn.data_contracts.presets import find_open_values
from privsyn.data_contracts.publication import COLUMN_WORDS
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.execute import Run
from privsyn.engine.improved_run import read_earlier_keys
from privsyn.engine.inputs import PrivateAccess
from privsyn.engine.keys import Generation, compute_lineage_keys, key_result, name_run, read_generation
from privsyn.engine.plan import Plan
from privsyn.engine.proposal import Books, Engines, Proposal
from privsyn.engine.step import release_steps
from privsyn.ledgers.known_tables import REQUEST, STORE
from privsyn.sources.file_source import FileSource
from privsyn.sources.private_table import Source
from privsyn.storage.records import DataRecord, read_note
from privsyn.storage.released_files import hide_places, read_certificate, read_manifest_if_readable, read_public_spec
from privsyn.storage.store import Store
from privsyn.tasks.codecs import EncodingPlan
from privsyn.tasks.panels.choose_rows import RowsOfPersons
from privsyn.tasks.panels.row_order import RowOrder

FIELDS_WITHOUT_NOISE = frozenset({"data", "query", "engine", "formats", "like", "about", "preset"})
"""Fields that no noise depends on, besides the texts of columns and the result of :func:`_list_free_fields`."""


@dataclass(frozen=True)
class RunMaker:
    """Makes the runs of a proposal, for any generation of noise.

    ``plan``: the proposal's, with its columns in the table's order; ``known_keys``: step -> key, for steps whose tables
    come from an earlier run that this one improves.
    """

    proposal: Proposal
    books: Books
    source: Source
    engines: Engines
    plan: Plan
    known_keys: Mapping[str, str]

    def compute_keys(self, generation: int, fingerprint: str) -> Mapping[str, str]:
        """Return the keys of the steps at this generation, for the data with this fingerprint."""
        plan, noise = self.plan, type(self.proposal.noise)
        return compute_lineage_keys(
            plan.request, fingerprint, generation, noise, plan.steps, plan.period, known_keys=self.known_keys
        )

    def build_run(self, generation: int, fingerprint: str) -> Run:
        """Return the run of this generation, for the data with this fingerprint."""
        plan, books, source, engines = self.plan, self.books, self.source, self.engines
        keys, order = self.compute_keys(generation, fingerprint), RowOrder(books.store.row_key)
        early = self.proposal.read_reason_for_early_period()
        noted = {STORE: self.books.store.identity, REQUEST: self.books.request}
        return Run(
            plan=plan,
            private=PrivateAccess(
                RowsOfPersons(source.batches, order),
                partial(_is_unchanged, source, books.store, fingerprint),
                engines.counts,
                partial(_encode_parts, source),
                {name: RowsOfPersons(further.batches, order) for name, further in source.further_tables.items()},
            ),
            keys=keys,
            name=name_run(books.records, plan.name or self.proposal.spec.dataset, key_result(keys, plan.steps)),
            store=books.store,
            records=books.records,
            ledger=books.ledger,
            noise=self.proposal.noise,
            report=self.proposal.report,
            public_work=None if engines.makes is None else self._open_public_work,
            charged_as={**noted, "early": early} if early else noted,
        )

    def _open_public_work(self) -> RowWork:
        """Return the work of post-processing in parts, by workers that see only a folder of unfinished rows."""
        settings = self.proposal.settings
        make_folder = partial(self.books.store.make_scratch, settings.dask_public_folder)
        return RowWork(self.engines.makes, make_folder, settings.threads, apart=True)


@dataclass(frozen=True)
class Draw:
    """The run that is opened if every check passes, and its data.

    ``fingerprints``: of the released data; ``generation``: of its noise.
    """

    proposal: Proposal
    source: Source
    engines: Engines
    fingerprints: tuple[str, ...]
    generation: Generation
    run: Run


def prepare_runs(
    proposal: Proposal, books: Books, source: Source, engines: Engines, fingerprints: tuple[str, ...]
) -> RunMaker:
    """Return the maker of a proposal's runs; ``fingerprints``: of the current table.

    Raises RequestError if the releases that it improves were made of another table or request.
    """
    released = proposal.spec.released_columns
    order = tuple(name for name in source.columns if name in released)
    request = proposal.plan.request.order_columns(order, proposal.settings.threads)
    plan, noise = replace(proposal.plan, request=request), type(proposal.noise)
    settings, store, records, ledger = proposal.settings, books.store, books.records, books.ledger
    given = read_earlier_keys(plan, fingerprints[0], noise, settings, store, records, ledger)
    return RunMaker(proposal, books, source, engines, plan, given)


def find_begun_run(maker: RunMaker, fingerprints: tuple[str, ...]) -> tuple[Run, str] | None:
    """Return the run that began the period, and its data's fingerprint, if the table has changed since.

    None if there is no such run here.
    """
    period, books = maker.plan.period, maker.books
    begun = None if period is None else books.ledger.period(maker.proposal.spec.dataset, period)
    noted = None if begun is None else books.records.load_as(f"data-of-{begun.run}", DataRecord)
    if begun is None or noted is None or noted.fingerprint == fingerprints[0]:
        return None
    run = maker.build_run(0, noted.fingerprint)
    return (run, noted.fingerprint) if run.name == begun.run else None  # another request began it: the ledger decides


def choose_draw(maker: RunMaker, fingerprints: tuple[str, ...]) -> Draw:
    """Return the draw of this data to continue or to begin.

    ``fresh`` takes the next generation, unless an unfinished ``fresh`` run was killed; it skips generations with lost
    tables.
    """
    proposal, steps, fingerprint = maker.proposal, maker.plan.steps, fingerprints[0]
    generation = read_generation(maker.books.records, maker.compute_keys(0, fingerprint), steps)
    run = maker.build_run(generation.number, fingerprint)
    if proposal.fresh and not generation.killed_fresh and (generation.finished or run.has_paid(maker.known_keys)):
        generation = replace(generation, number=generation.last + 1, finished=False)
        run = maker.build_run(generation.number, fingerprint)
    while proposal.fresh and (lost := run.list_lost_steps()) and lost[0].name not in maker.known_keys:
        generation = replace(generation, number=generation.number + 1, finished=False)
        run = maker.build_run(generation.number, fingerprint)
    return Draw(proposal, maker.source, maker.engines, fingerprints, generation, run)


def _encode_parts(source: Source, encoding: EncodingPlan, with_numbers: bool) -> tuple[Make, list[Partition]] | None:
    """Return a function that encodes parts of the private table, and the parts; None for a table encoded at once."""
    if not isinstance(source, FileSource) or source.layout.format != "parquet":
        return None
    files = [file.absolute() for file in source.files if isinstance(file, Path)]
    parts = list_parts(files) if len(files) == len(source.files) else []
    return (partial(encode_part, source.read, encoding, with_numbers), parts) if parts else None


def _is_unchanged(source: Source, store: Store, fingerprint: str) -> bool:
    """Return whether the table is now the same as the one to release."""
    same = source.fingerprint(store) == fingerprint
    source.close()  # a snapshot must not outlive its reader: a database keeps old rows for it
    return same


def refuse_silent_redraw(current: Run, settings: Settings, fingerprint: str, asks: Mapping[str, Any]) -> None:
    """Raise RequestError if an earlier version of this program was paid for what ``current`` would draw again.

    Such a run has the same data and the same ``asks`` (the request beyond its spec: a period, figures), and its spec
    has every value that this one gives explicitly.  Steps or defaults have changed since, so its noise does not fit.
    Its charge stays in the ledger, and its released folder stays.
    """
    spec = current.request.spec
    periods = {row.run: row.period for row in current.ledger.periods(current.dataset)}
    this_version = version("privsyn-flows")
    for note in sorted((settings.private_root / "runs").glob("*/run.json")):
        run = read_note(note)
        if run.get("fingerprint") != fingerprint or run.get("run") == current.name:
            continue
        if _list_asks(run, periods) != asks and not _are_same_figures(run, settings, spec, asks):
            continue
        if run.get("version") == this_version and not _has_other_steps(run, settings, current):
            continue  # most runs: their specs need not be read
        program, content = _describe_origin(run, settings, spec)
        if program is None or content is None:
            continue
        if program == this_version and not _has_other_steps(run, settings, current):
            continue
        free = FIELDS_WITHOUT_NOISE | _list_free_fields(current.plan, content)
        if any(True for _ in _find_unlike(spec, content, free | _list_preset_fields(spec), explicit_only=True)):
            continue
        keys = run.get("keys")
        paid = isinstance(keys, Mapping) and any(
            current.ledger.state(current.dataset, str(key)) == "spent" for key in keys.values()
        )
        if paid:
            changed = ", ".join(_find_unlike(spec, content, free, explicit_only=False)) or "its steps"
            this_program = "this program" if program == this_version else f"version {this_version}"
            privacy = spec.privacy
            finished = (settings.released_root / str(run["run"])).is_dir()
            stands = "Its release stands." if finished else "It was never finished; its charge stands."
            raise RequestError(
                f"the run {run['run']} of version {program} was paid for this request, and {this_program} would draw "
                f"it anew ({changed} changed); nothing was spent",
                f"{stands} New noise costs epsilon {privacy.epsilon:g} with delta {privacy.delta:g} "
                f"(rho {float(current.plan.rho):.4g}) once more: for that, " + current.plan.redraw,
                "release.fresh",
            )


def _list_asks(run: Mapping[str, Any], periods: Mapping[str, str]) -> Mapping[str, Any] | None:
    """Return the request of a run beyond its spec; None for quality figures before 0.3.0, which do not note it."""
    if "asks" in run:
        return dict(run["asks"])
    if "decode" not in run.get("keys", ()):
        return None
    return {"period": periods[run["run"]]} if run.get("run") in periods else {}


def _are_same_figures(run: Mapping[str, Any], settings: Settings, spec: ReleaseSpec, asks: Mapping[str, Any]) -> bool:
    """Return whether a run before 0.3.0, whose note lacks the request, made the figures of ``asks``.

    It compares the run's name, which begins with the compared release's, and the promise in its certificate.
    """
    compared = [ask["release"] for ask in asks.values() if isinstance(ask, Mapping) and "release" in ask]
    name = str(run.get("run", ""))
    if "asks" in run or "decode" in run.get("keys", ()) or [name.rpartition("-quality-")[0]] != compared:
        return False
    try:
        certificate = read_certificate(settings.released_root / name)
    except RequestError:
        return False
    return (certificate.epsilon, certificate.delta) == (spec.privacy.epsilon, spec.privacy.delta)


def _describe_origin(
    run: Mapping[str, Any], settings: Settings, figures_spec: ReleaseSpec
) -> tuple[str | None, ReleaseSpec | None]:
    """Return the version that made a run, and its spec.

    From the run's note or, before 0.3.0, from its released folder.  The manifest of figures has no spec;
    ``figures_spec`` takes its place.
    """
    if "version" in run and "spec" in run:
        try:
            content = {**run["spec"], **hide_places(run["spec"].get("tables"))}
            return str(run["version"]), ReleaseSpec.model_validate(content)
        except ValidationError:  # from a version with other fields
            return None, None
    manifest = read_manifest_if_readable(settings.released_root / str(run.get("run", "")))
    if manifest is None:
        return None, None
    if "decode" not in run.get("keys", ("decode",)):
        return manifest.versions.get("privsyn-flows"), figures_spec
    try:
        return manifest.versions.get("privsyn-flows"), read_public_spec(manifest)
    except RequestError:
        return None, None


def _list_free_fields(plan: Plan, earlier: ReleaseSpec) -> frozenset[str]:
    """Return the fields whose earlier values need no new look, dotted.

    These are the places of tables, and ``null_values`` and fields of ``mechanism.synthesis`` whose earlier values leave
    every look's settings unchanged.

    If rows are made last, these are all fields of synthesis; not for a mechanism that looks after making rows.
    """
    spec, looks = plan.request.spec, {step.name for step in release_steps(plan.steps)}
    last = max(place for place, step in enumerate(plan.steps) if step.name in looks)
    synthesis = spec.mechanism.synthesis

    def list_settings(asked: ReleaseSpec) -> list[str]:
        request = replace(plan.request, spec=asked)
        return [step.key_json(request) for step in plan.steps[: last + 1]]

    current = list_settings(spec)
    options = {name: getattr(earlier.mechanism.synthesis, name, None) for name in type(synthesis).model_fields}
    free = {
        f"mechanism.synthesis.{name}"
        for name, value in options.items()
        if value is None or list_settings(spec.with_rows(**{name: value})) == current
    }
    free |= {f"tables.{name}.data" for name in spec.tables}  # notes hide the places of tables
    read = spec.null_values != earlier.null_values and any("null_values" in s.fields for s in plan.steps[: last + 1])
    return frozenset(free if read else free | {"null_values"})


def _list_preset_fields(spec: ReleaseSpec) -> frozenset[str]:
    """Return the fields, dotted, that the default preset may have filled in, without the user's request."""
    if spec.preset == "paper":
        return frozenset()
    values = find_open_values(spec.preset, list_described_columns(spec))
    return frozenset(f"mechanism.{section}.{name}" for section, fields in values.items() for name in fields)


def _has_other_steps(run: Mapping[str, Any], settings: Settings, current: Run) -> bool:
    """Return whether steps of other versions drew the run's noise, by its note or released folder.

    A run without this information was begun, and never finished, before notes had versions.
    """
    then = run.get("steps")
    if not isinstance(then, Mapping):
        manifest = read_manifest_if_readable(settings.released_root / str(run.get("run", "")))
        if manifest is None:
            return True
        then = {str(step.get("step")): step.get("version") for step in manifest.steps}
    last = max(i for i, step in enumerate(current.steps) if step.kind is StepKind.RELEASE)
    return any(step.name in then and then[step.name] != step.version for step in current.steps[: last + 1])


def _find_unlike(
    request: BaseModel, earlier: BaseModel, ignored_fields: AbstractSet[str], *, explicit_only: bool, place: str = ""
) -> Iterator[str]:
    """Yield the fields in which the two requests differ, dotted, without the ``ignored_fields`` ones.

    ``explicit_only``: only fields that ``request`` gives explicitly.
    """
    names = request.model_fields_set if explicit_only else type(request).model_fields
    for name in names:
        requested, before = getattr(request, name), getattr(earlier, name, None)
        dotted = f"{place}.{name}" if place else name
        if dotted in ignored_fields or (place.startswith("columns.") and name in COLUMN_WORDS):
            continue
        if isinstance(requested, BaseModel) and isinstance(before, BaseModel):
            yield from _find_unlike(requested, before, ignored_fields, explicit_only=explicit_only, place=dotted)
        elif isinstance(requested, dict) and isinstance(before, dict) and requested.keys() == before.keys():
            for key, value in requested.items():
                yield from _find_unlike(
                    value, before[key], ignored_fields, explicit_only=explicit_only, place=f"{dotted}.{key}"
                )
        elif requested != before:
            yield dotted
