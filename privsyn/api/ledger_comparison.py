"""The ledger against the certificates on disk: each must account for the other.

The charges of a run name its folders.  A certificate names no lineage key, because it may hold nothing of the data; the
private note of its run does (``private/runs/RUN/run.json``).  Without that note, charges are found by the run's name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from privsyn.base.errors import RequestError
from privsyn.base.registry import load_part
from privsyn.base.settings import Settings
from privsyn.base.wording import Text, mention
from privsyn.data_contracts.certificate import Certificate, StageCost
from privsyn.data_contracts.receipts import format_rho, sum_rho
from privsyn.engine.step import ReleaseStep, release_steps
from privsyn.ledgers.audit import DatasetSummary, Entry, charge_states
from privsyn.ledgers.ledger import Ledger
from privsyn.pipelines.registry import plan_release
from privsyn.publish.certificate_of_run import is_certified
from privsyn.publish.folder import is_whole
from privsyn.storage.records import read_note
from privsyn.storage.released_files import (
    find_kind_of,
    list_synthetic_names,
    read_certificate,
    read_manifest_if_readable,
    read_public_spec,
)
from privsyn.tasks.estimation.noisy import read_receipts

CERTIFICATE = "certificate.json"


@dataclass(frozen=True)
class PublishedCertificate:
    """A published folder: its certificate, and its steps' lineage keys if the private zone has them."""

    folder: Path
    certificate: Certificate
    keys: Mapping[str, str] | None


@dataclass(frozen=True)
class Roots:
    """The folders of a run's charges, as the ledger remembers them."""

    released: Path
    private: Path


@dataclass
class LedgerComparison:
    """``problems``: contradictions; ``notes``: facts worth knowing, and things that were not compared.

    ``certificates``: the number found; ``charges_without_certificate``: the number of spent charges without a
    certificate; ``charges_not_compared``: how many of these may belong to a release whose folder is elsewhere.
    """

    certificates: int = 0
    charges_without_certificate: int = 0
    charges_not_compared: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[Text] = field(default_factory=list)


def compare_with_certificates(
    ledger: Ledger, settings: Settings, dataset: str | None = None, against: Sequence[Path] = ()
) -> LedgerComparison:
    """Compare the ledger's history with every known certificate.

    These are the certificates under the released root, in the folders of runs that the ledger remembers, and in
    ``against``.

    ``dataset``: compare only this data set; ``against``: released folders, or folders of them, anywhere.  Raises
    RequestError for a folder of ``against`` without a certificate.
    """
    result, covered = LedgerComparison(), set[str]()
    everything, summaries = ledger.entries(), {s.dataset: s for s in ledger.summary()}
    entries = [e for e in everything if dataset in (None, e.dataset)]
    weaker, published_of = 0, dict[str, list[PublishedCertificate]]()
    remembered = _list_remembered(entries)
    private_roots = {roots.released.resolve(): roots.private for roots in remembered.values()}
    private_roots[settings.released_root.resolve()] = settings.private_root
    for folder in _list_folders(settings.released_root, remembered, against):
        try:
            certificate = read_certificate(folder)
        except RequestError as error:
            result.problems.append(str(error).rstrip("."))
            continue
        if dataset is None or certificate.dataset == dataset:
            result.certificates += 1
            weaker += certificate.ledger is None
            private_root = private_roots.get(folder.parent.resolve(), settings.private_root)
            published = PublishedCertificate(folder, certificate, _collect_keys(private_root, certificate.run))
            published_of.setdefault(certificate.run, []).append(published)
            of_dataset = [e for e in entries if e.dataset == certificate.dataset]
            try:
                problems = _check_certificates(published, renamed=folder.parent.resolve() not in private_roots)
                problems += _check_ledger(published, of_dataset, summaries.get(certificate.dataset))
                problems += _check_heads(certificate, everything)
            except (ValueError, ZeroDivisionError):
                problems = ["its certificate holds a text that is not a number"]
            result.problems += [f"{certificate.run}: {p}" for p in problems]
            covered |= {charge.key for charge in _collect_charges(published, of_dataset).values()}
    result.problems += [f"{run}: {p}" for run, copies in published_of.items() for p in _find_second_draws(copies)]
    if weaker:
        result.notes.append(
            f"{weaker} of {result.certificates} certificates name no entry of the ledger, like certificates of "
            "earlier versions: they are compared with their charges only"
        )
    _add_uncovered(result, entries, covered, remembered, settings)
    return result


def list_certified_folders(
    ledger: Ledger, settings: Settings, dataset: str | None = None, against: Sequence[Path] = ()
) -> list[Path]:
    """Return every released folder with a known certificate, in the order of :func:`compare_with_certificates`.

    It has the same arguments and errors, but leaves out folders with an unreadable certificate, which the other
    reports.
    """
    entries = [e for e in ledger.entries() if dataset in (None, e.dataset)]
    return _list_folders(settings.released_root, _list_remembered(entries), against)


def list_receipts_files(folder: Path) -> dict[str, Path]:
    """Return release step -> its receipts file in a released folder, for the steps that publish one."""
    names = {step.name: step.published["receipts"].name for step in _list_published_steps(folder)}
    return {step: folder / name for step, name in names.items() if (folder / name).is_file()}


def _list_remembered(entries: Sequence[Entry]) -> dict[tuple[str, str], Roots]:
    """Return (data set, run) -> the folders that the run's charges name; charges of early versions name none."""
    return {
        (e.dataset, e.run): Roots(Path(e.detail["released_root"]), Path(e.detail["private_root"]))
        for e in entries
        if e.event == "reserve" and {"released_root", "private_root"} <= e.detail.keys()
    }


def _list_folders(
    released_root: Path, remembered: Mapping[tuple[str, str], Roots], against: Sequence[Path]
) -> list[Path]:
    elsewhere = (roots.released / run for (_, run), roots in remembered.items())
    folders = {
        folder.resolve(): folder
        for folder in (
            *_iterate_folders(released_root),
            *(folder for folder in elsewhere if _can_be_listed(folder)),
            *list_given_folders(against, released_root),
        )
    }
    return list(folders.values())


def _can_be_listed(folder: Path) -> bool:
    try:
        next(folder.iterdir(), None)
    except OSError:
        return False
    return True


def list_given_folders(against: Sequence[Path], released_root: Path) -> list[Path]:
    """Return the released folders among ``against`` and directly inside its others, outside ``released_root``."""
    folders: dict[Path, None] = {}
    for place in against:
        inside = (
            [place] if (place / CERTIFICATE).is_file() else [f.parent for f in sorted(place.glob(f"*/{CERTIFICATE}"))]
        )
        if not inside:
            raise RequestError(
                f"{place} is not a released folder and holds none",
                "Name a folder with a certificate.json, or a folder of such folders",
                "ledger.against",
            )
        folders |= dict.fromkeys(folder.resolve() for folder in inside if not folder.name.startswith("."))
    return [folder for folder in folders if folder.parent != released_root.resolve()]


def _iterate_folders(root: Path) -> Iterator[Path]:
    if root.is_dir():
        yield from (p for p in sorted(root.iterdir()) if p.is_dir() and not p.name.startswith("."))


def _check_heads(certificate: Certificate, entries: Sequence[Entry]) -> list[str]:
    """Return a problem if the ledger is older than the certificate; ``entries``: entries of all data sets."""
    head = certificate.ledger
    if head is None or (0 < head.entries <= len(entries) and entries[head.entries - 1].hash == head.hash):
        return []
    return [
        f"the ledger had entry {head.entries} when it was published, which is not there as it was: the ledger is an "
        "older copy, or another history"
    ]


def _find_second_draws(copies: Sequence[PublishedCertificate]) -> list[str]:
    """Find folders of one run with different noisy tables, by their manifests: then one charge had two draws."""
    draws = set()
    for folder in (published.folder for published in copies):
        manifest = read_manifest_if_readable(folder)
        if manifest is not None:
            names = [step.published["noisy"].name for step in _list_published_steps(folder)]
            draws.add(tuple((n, manifest.files[n].sha256) for n in names if n in manifest.files))
    if len(draws - {()}) < 2:
        return []
    return [f"{len(copies)} released folders of this run hold different noisy tables: a charge has covered two draws"]


def _collect_keys(private_root: Path, run: str) -> Mapping[str, str] | None:
    keys = read_note(private_root / "runs" / run / "run.json").get("keys")
    return {str(k): str(v) for k, v in keys.items()} if isinstance(keys, dict) else None


def _check_certificates(published: PublishedCertificate, *, renamed: bool) -> list[str]:
    """Return the faults within the folder; ``renamed``: it may have another name than the run, as a receiver's copy.

    Raises ValueError or ZeroDivisionError for a text that is not a number.
    """
    certificate, problems = published.certificate, []
    receipts = list_receipts_files(published.folder)
    if published.folder.name != certificate.run and not renamed:
        problems.append(f"its certificate lies in the folder {published.folder.name}")
    if not is_whole(published.folder):
        problems.append("its files differ from its manifest")
    stages = certificate.stages
    if sum((Fraction(s.rho_budget) for s in stages), Fraction(0)) != Fraction(certificate.rho_budget):
        problems.append("the stages' budgets do not sum to the certificate's rho_budget")
    for stage in stages:
        prices = sum((g.queries * Fraction(g.rho_each) for g in stage.groups), Fraction(0))
        if format_rho(prices) != stage.rho_spent or prices > Fraction(stage.rho_budget):
            problems.append(f"the prices of {stage.step} do not sum to its rho_spent, or pass its budget")
        problems += _check_receipts(stage, receipts)
    return problems


def _list_published_steps(folder: Path) -> list[ReleaseStep]:
    """Return the release steps whose tables the folder has, by its own request; none if it holds figures."""
    manifest = read_manifest_if_readable(folder)
    if manifest is None:
        return []
    if kind := find_kind_of(manifest):
        return list(release_steps(load_part("requests", kind)(manifest)))
    return list(release_steps(plan_release(read_public_spec(manifest)).steps)) if list_synthetic_names(manifest) else []


def _check_receipts(stage: StageCost, receipts: Mapping[str, Path]) -> list[str]:
    """Check that the released receipts of a stage cost what the certificate says; some stages have none."""
    if stage.step not in receipts:
        return []
    try:
        queries = read_receipts(pq.read_table(receipts[stage.step]))
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return [f"the receipts of {stage.step} cannot be read, or state a price that their noise does not have"]
    same = len(queries) == sum(g.queries for g in stage.groups) and format_rho(sum_rho(queries)) == stage.rho_spent
    return [] if same else [f"the receipts of {stage.step} do not cost what the certificate says"]


def _collect_charges(published: PublishedCertificate, entries: Sequence[Entry]) -> dict[str, Entry]:
    """Return release step -> the latest reservation of the certificate's stage, by key, else by the run's name."""
    steps = {s.step for s in published.certificate.stages}
    runs = {published.certificate.run, *(published.certificate.improves or ())}
    charges = {}
    for entry in entries:
        by_key = published.keys is not None and published.keys.get(entry.step) == entry.key
        by_name = published.keys is None and entry.run in runs
        if entry.event == "reserve" and entry.step in steps and (by_key or by_name):
            charges[entry.step] = entry
    return charges


def _check_ledger(
    published: PublishedCertificate, entries: Sequence[Entry], summary: DatasetSummary | None
) -> list[str]:
    """Return contradictions between the certificate and the ledger of its data set; errors as above."""
    certificate = published.certificate
    if summary is None:
        return [f"its certificate is of {certificate.dataset!r}, which the ledger does not know"]
    problems, states, charges = [], charge_states(entries), _collect_charges(published, entries)
    for stage in certificate.stages:
        charge = charges.get(stage.step)
        if charge is None:
            if stage.groups:
                how = "" if published.keys else " under this run's name (its private note is not at hand)"
                problems.append(f"the ledger has no charge for its {stage.step}{how}")
        elif charge.rho != Fraction(stage.rho_budget):
            problems.append(f"the ledger charged another rho for its {stage.step} than its certificate says")
        elif stage.groups and states[charge.key].event != "spent":
            problems.append(f"the charge of its {stage.step} is {states[charge.key].name} in the ledger, not spent")
    total = certificate.dataset_total
    if Fraction(total.rho_cap) != summary.cap_rho:
        problems.append("its certificate names another lifetime cap than the ledger")
    if Fraction(total.rho) > summary.rho:
        problems.append("its certificate knows of more spending than the ledger: entries are missing")
    return problems


def _add_uncovered(
    result: LedgerComparison,
    entries: Sequence[Entry],
    covered: Collection[str],
    remembered: Mapping[tuple[str, str], Roots],
    settings: Settings,
) -> None:
    """Add the spent charges without a certificate here, by run.

    A run that a private folder knows and has not published is only unfinished.  A run that was published, or that both
    its folders have forgotten, is a problem.  For a run whose folders are elsewhere, a note asks for them.
    """
    runs: dict[tuple[str, str], int] = {}
    for entry in entries:
        if entry.event == "spent" and entry.key not in covered:
            runs[entry.dataset, entry.run] = runs.get((entry.dataset, entry.run), 0) + 1
    result.charges_without_certificate = sum(runs.values())
    uncompared: dict[tuple[str, Path | None], list[int]] = {}
    for (dataset, run), count in runs.items():
        roots = remembered.get((dataset, run))
        holding_roots = [
            root
            for root in dict.fromkeys((settings.private_root, *([roots.private] if roots else ())))
            if _collect_keys(root, run) is not None
        ]
        words = f"{run}: {count} spent charges of {dataset!r} have no certificate"
        if any(is_certified(root, dataset, run) for root in holding_roots):
            where = roots.released if roots else settings.released_root
            result.problems.append(f"{words}: it was published, and its folder is not in {where}")
        elif holding_roots:
            result.notes.append(f"{words}: the run was not finished")
        elif roots is not None and all(_can_be_listed(root) for root in (roots.released, roots.private)):
            result.problems.append(f"{words}: neither {roots.released} nor {roots.private} knows the run any more")
        else:
            uncompared.setdefault((dataset, roots.released if roots else None), []).append(count)
    for (dataset, place), counts in uncompared.items():
        result.charges_not_compared += sum(counts)
        why = "an earlier version noted no folder" if place is None else f"{place} cannot be seen from here"
        result.notes.append(
            f"{sum(counts)} spent charges of {len(counts)} runs of {dataset!r} were compared with nothing, since "
            f"{why}: name the released folders, or copies, in " + mention("ledger.against")
        )
