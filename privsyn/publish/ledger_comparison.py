"""The ledger against the certificates on disk: each must account for the other.

A certificate names no lineage key, since nothing of the data may be in it; the private note of its run does
(``private/runs/RUN/run.json``).  Where that is not at hand, charges are found by the run's name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from privsyn.data_contracts.certificate import Certificate, StageCost
from privsyn.data_contracts.receipts import rho_text, total_rho
from privsyn.errors import RequestError
from privsyn.ledgers.audit import Entry, charge_states
from privsyn.ledgers.ledger import DatasetSummary
from privsyn.mechanisms.release_job import plan_of
from privsyn.publish.folder import is_whole
from privsyn.run.step import release_steps
from privsyn.settings import Settings
from privsyn.storage.released_files import manifest_if_readable, public_spec, read_certificate, synthetic_names
from privsyn.tasks.noisy import receipts_from_table


@dataclass(frozen=True)
class PublishedCertificate:
    """One published folder: its certificate, and its steps' lineage keys where the private zone has them."""

    folder: Path
    certificate: Certificate
    keys: Mapping[str, str] | None


@dataclass
class Comparison:
    """``problems``: what cannot both be true; ``notes``: what is only worth knowing; ``certificates``: how many."""

    certificates: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def compare_with_disk(
    entries: Sequence[Entry], summaries: Sequence[DatasetSummary], settings: Settings, dataset: str | None = None
) -> Comparison:
    """Compare the ledger's history with every certificate under the released root; of one data set, if it is named.

    ``entries`` and ``summaries`` are the whole ledger's, or those of the named data set.
    """
    result, covered = Comparison(), set[str]()
    known = {s.dataset: s for s in summaries}
    for folder in _folders(settings.released_root):
        try:
            certificate = read_certificate(folder)
        except RequestError as error:
            result.problems.append(str(error).rstrip("."))
            continue
        if dataset is None or certificate.dataset == dataset:
            result.certificates += 1
            published = PublishedCertificate(folder, certificate, _keys(settings.private_root, certificate.run))
            of_dataset = [e for e in entries if e.dataset == certificate.dataset]
            try:
                problems = _certificate_problems(published)
                problems += _ledger_problems(published, of_dataset, known.get(certificate.dataset))
            except (ValueError, ZeroDivisionError):
                problems = ["its certificate holds a text that is not a number"]
            result.problems += [f"{certificate.run}: {p}" for p in problems]
            covered |= {charge.key for charge in _charges(published, of_dataset).values()}
    result.notes += _uncovered(entries, covered)
    return result


def _folders(root: Path) -> Iterator[Path]:
    if root.is_dir():
        yield from (p for p in sorted(root.iterdir()) if p.is_dir() and not p.name.startswith("."))


def _keys(private_root: Path, run: str) -> Mapping[str, str] | None:
    try:
        note = private_root / "runs" / run / "run.json"
        return {str(k): str(v) for k, v in json.loads(note.read_text(encoding="utf-8"))["keys"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _certificate_problems(published: PublishedCertificate) -> list[str]:
    """What is wrong within the folder: changed files, and sums that are not those of their parts.

    Raises ValueError or ZeroDivisionError for a text that is not a number.
    """
    certificate, problems = published.certificate, []
    receipts = _receipts(published.folder)
    if published.folder.name != certificate.run:
        problems.append(f"its certificate lies in the folder {published.folder.name}")
    if not is_whole(published.folder):
        problems.append("its files are not those of its manifest")
    stages = certificate.stages
    if sum((Fraction(s.rho_budget) for s in stages), Fraction(0)) != Fraction(certificate.rho_budget):
        problems.append("the stages' budgets do not sum to the certificate's rho_budget")
    for stage in stages:
        prices = sum((g.queries * Fraction(g.rho_each) for g in stage.groups), Fraction(0))
        if rho_text(prices) != stage.rho_spent or prices > Fraction(stage.rho_budget):
            problems.append(f"the prices of {stage.step} do not sum to its rho_spent, or pass its budget")
        problems += _receipt_problems(published.folder, stage, receipts)
    return problems


def _receipts(folder: Path) -> dict[str, str]:
    """Release step -> its released receipts, by the folder's own request; none where it is not a release."""
    manifest = manifest_if_readable(folder)
    if manifest is None or not synthetic_names(manifest):
        return {}
    steps = release_steps(plan_of(public_spec(manifest)).steps)
    return {step.name: step.published["receipts"].name for step in steps}


def _receipt_problems(folder: Path, stage: StageCost, receipts: Mapping[str, str]) -> list[str]:
    """Whether the released receipts of a stage cost what the certificate says; a stage without any has none."""
    file = folder / receipts.get(stage.step, "-")
    if not file.is_file():
        return []
    try:
        queries = receipts_from_table(pq.read_table(file))
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return [f"the receipts of {stage.step} cannot be read, or state a price that is not that of their noise"]
    same = len(queries) == sum(g.queries for g in stage.groups) and rho_text(total_rho(queries)) == stage.rho_spent
    return [] if same else [f"the receipts of {stage.step} do not cost what the certificate says"]


def _charges(published: PublishedCertificate, entries: Sequence[Entry]) -> dict[str, Entry]:
    """Release step -> the latest reservation that the certificate's stage rests on; by key, else by the run's name."""
    steps = {s.step for s in published.certificate.stages}
    charges = {}
    for entry in entries:
        by_key = published.keys is not None and published.keys.get(entry.step) == entry.key
        by_name = published.keys is None and entry.run == published.certificate.run
        if entry.event == "reserve" and entry.step in steps and (by_key or by_name):
            charges[entry.step] = entry
    return charges


def _ledger_problems(
    published: PublishedCertificate, entries: Sequence[Entry], summary: DatasetSummary | None
) -> list[str]:
    """Where the certificate says something else than the ledger of its data set; errors as above."""
    certificate = published.certificate
    if summary is None:
        return [f"its certificate is of {certificate.dataset!r}, which the ledger does not know"]
    problems, states, charges = [], charge_states(entries), _charges(published, entries)
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


def _uncovered(entries: Sequence[Entry], covered: set[str]) -> list[str]:
    """Spent charges that no certificate on this disk rests on; they stay spent, so nobody's privacy is at stake."""
    runs: dict[tuple[str, str], int] = {}
    for entry in entries:
        if entry.event == "spent" and entry.key not in covered:
            runs[entry.dataset, entry.run] = runs.get((entry.dataset, entry.run), 0) + 1
    why = "the run was not finished, or its folder was moved"
    return [f"{run}: {n} spent charges of {name!r} have no certificate here: {why}" for (name, run), n in runs.items()]
