"""Publishing: the released folder, its certificate, manifest and data-release note.

Belongs here: everything under ``released/<run>/``.  Does not belong here: making any table.
What is written is a function of the public request, the noisy tables and the ledger's public figures; no
path, time, machine or exact count is in it, and the same run always gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from data_contracts.artifacts import ArtifactRef
from data_contracts.certificate import Certificate, Manifest, QueryGroup, StageCost, Total
from data_contracts.publication import Format, checked_formats
from data_contracts.receipts import SMOOTHING, Pricing, Query, rho_text, total_rho
from flows.errors import RequestError
from flows.formats.described import files_in
from flows.formats.writing import write_descriptions, write_tables
from flows.note import release_note
from flows.preflight import Opened
from flows.rounds import released_tables
from flows.settings import Settings
from flows.shell import Shell, StepRefs
from flows.step import MEASURE_AGAIN, Request, base_name
from flows.storage.record_kinds import FormatsRecord
from flows.storage.records import Records, write_json
from flows.storage.released_files import manifest_if_readable, read_certificate, read_manifest
from flows.storage.store import Store
from flows.versions import made_by
from tasks.noisy import receipts_from_table
from tasks.privacy.accountant import Accountant
from tasks.privacy.gaussian_dp import LEAKED

MARGINALS = {
    "marginals/one_way.parquet": "one_way_marginals.noisy",
    "marginals/one_way_receipts.parquet": "one_way_marginals.receipts",
    "marginals/recode.parquet": "compress_domain.recode",
    "marginals/scores.parquet": "indif_scores.noisy",
    "marginals/scores_receipts.parquet": "indif_scores.receipts",
    "marginals/measured.parquet": "measure_marginals.noisy",
    "marginals/measured_receipts.parquet": "measure_marginals.receipts",
    "marginals/consistent.parquet": "make_consistent.marginals",
}
"""Released file -> table of the run."""

LISTED_QUERIES = 5_000
"""A group of more queries than this is not listed one by one in the certificate (its receipts table is)."""

_ZCDP = "zCDP adds up over all queries (Bun and Steinke 2016, Lemma 2.3; PrivSyn, Theorem 1); the sum rho is converted"

COMPOSITION: dict[Accountant, str] = {
    "gaussian": "prices add up over all queries, also where later ones depend on earlier answers (Smith and Thakurta "
    "2022; own proof in docs/privacy.md); together they keep mu-Gaussian differential privacy, mu = sqrt(2 rho), at "
    f"epsilon - {float(LEAKED):g} and delta / (1 + {float(LEAKED):g}), and so (epsilon, delta) by Balle and Wang 2018, "
    "Theorem 8",
    "tight": f"{_ZCDP} to (epsilon, delta) by Canonne, Kamath and Steinke 2020, Corollary 13",
    "paper": f"{_ZCDP} to (epsilon, delta) by rho + 2 sqrt(rho ln(1/delta)) = epsilon (PrivSyn, Theorem 2)",
}
"""Accountant -> how the prices become the promise."""

PRICE: dict[Pricing, str] = {
    "gaussian": f"rho = sensitivity^2 / (2 (sigma^2 - {SMOOTHING})): but for a factor within exp(+-4e-26) a count, "
    f"discrete Gaussian noise is continuous Gaussian noise of variance sigma^2 - {SMOOTHING}, rounded at random "
    "(docs/privacy.md)",
    "zcdp": "rho = sensitivity^2 / (2 sigma^2), Canonne, Kamath and Steinke 2020, Theorem 14",
}
"""Pricing -> how a query's price follows from its noise."""

REASONS = {
    "one_way_marginals": "k, the records a person may have: all k may fall into one cell",
    "indif_scores": "4k: PrivSyn, Lemma 4, for each of a person's k records; rounding down to whole records keeps it",
    "indif_scores, one_ways": "k: against the noisy one-ways, released before, each of a person's k records changes "
    "one count by 1, so the L1 distance by at most 1; rounding down to whole records keeps it",
    "measure_marginals": "k, the records a person may have: all k may fall into one cell",
    "residual_scores": "k: against the rows made so far from what was released before, each of a person's k records "
    "changes one count by 1, so the L1 distance by at most 1; rounding down to whole records keeps it",
    "measure_again": "k, the records a person may have: all k may fall into one cell",
    "quality_figures": "k times the figure's number of marginals or queries: each record changes each by at most 1",
}
"""Release step (and setting) -> why its queries have their sensitivity."""


class ReleaseSummary(BaseModel):
    """What a run left behind; holds no private value."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str
    released: str
    private: str
    rows: int
    epsilon: float
    delta: float
    rho: float
    drawn: tuple[str, ...]


@dataclass(frozen=True)
class Published:
    """A released folder and what the run page shows of it."""

    folder: Path
    rows: int
    note: str


def publish(run: Opened, refs: Mapping[str, StepRefs]) -> Published:
    """Write ``released/<run>/`` atomically, or find it whole; the private folder gets the repair counts.

    A run whose noise was not drawn by the release source is marked not private and stays in the private zone.
    """
    run = _with_added_formats(run)
    shell, request = run.shell, run.shell.request
    certificate = certificate_of(shell, refs)
    table = refs["decode"].tables["synthetic"]
    rows = shell.store.stored(table).num_rows
    note = release_note(request, certificate, rows, private=shell.noise.private)
    _publish_private(run, refs)

    def build(folder: Path) -> None:
        fill(folder, shell, refs, certificate, lambda: made_by(shell.records, folder, run.released / shell.run))

    return Published(place(run, build), rows, note)


def _with_added_formats(run: Opened) -> Opened:
    """The same run, asked for the formats too that ``privsyn formats`` added to its release."""
    shell = run.shell
    spec = shell.request.spec
    formats = checked_formats((*spec.formats, *added_formats(shell.records, shell.run)))
    request = replace(shell.request, spec=spec.model_copy(update={"formats": formats}))
    return replace(run, shell=replace(shell, request=request))


def added_formats(records: Records, run: str, more: Sequence[Format] = ()) -> tuple[Format, ...]:
    """The formats that were added to a run's release whatever its spec says; ``more`` are remembered with them."""
    record = f"formats-{run}"
    kept = records.load_as(record, FormatsRecord) or FormatsRecord(formats=[])
    formats = tuple(dict.fromkeys((*kept.formats, *more)))
    if more:
        records.save(record, {"formats": list(formats)})
    return formats


def fill(
    folder: Path,
    shell: Shell,
    refs: Mapping[str, StepRefs],
    certificate: Certificate,
    versions: Callable[[], Mapping[str, str]],
) -> None:
    """Write every file of a release into ``folder``; a function of the run's released tables and the arguments.

    ``versions`` tells by which versions the tables were made, once they are in the folder.
    """
    request, table = shell.request, refs["decode"].tables["synthetic"]
    rows, private = shell.store.stored(table).num_rows, shell.noise.private
    _add_tables(shell.store, refs, table, folder)
    made = versions()
    write_tables(folder, request.spec, request.column_order)
    (folder / "certificate.json").write_text(certificate.model_dump_json(indent=2) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(release_note(request, certificate, rows, private=private), encoding="utf-8")
    if private:
        write_descriptions(folder, request.spec, certificate, request.column_order, rows, made)
    write_manifest(shell, folder, rows, made)


def place(run: Opened, build: Callable[[Path], None]) -> Path:
    """Let ``build`` fill the run's released folder, which appears whole or not at all, or find it whole.

    Where the noise was not drawn by the release source, the folder is ``not-private`` in the private zone.
    """
    shell = run.shell
    if shell.noise.private:
        folder = run.released / shell.run
        shell.store.recover(shell.run)
        if not is_whole(folder) or not _as_asked(folder, shell.request):
            folder = shell.store.publish(shell.run, build, replace=True)
    else:
        folder = run.private_folder / "not-private"
        folder.mkdir(exist_ok=True)
        build(folder)
    return folder


def summarize(run: Opened, published: Published) -> ReleaseSummary:
    """The figures that the command line and the flow return."""
    request = run.shell.request
    return ReleaseSummary(
        run=run.shell.run,
        released=str(published.folder),
        private=str(run.private_folder),
        rows=published.rows,
        epsilon=request.spec.privacy.epsilon,
        delta=request.spec.privacy.delta,
        rho=float(request.total_rho()),
        drawn=tuple(run.shell.drawn),
    )


def summary_on_disk(run: str, settings: Settings) -> ReleaseSummary | None:
    """The figures of a run that is published already, from its released folder; None where that is not there."""
    folder = settings.released_root / run
    try:
        manifest, certificate = read_manifest(folder), read_certificate(folder)
    except RequestError:
        return None
    return ReleaseSummary(
        run=run,
        released=str(folder),
        private=str(settings.private_root / "runs" / run),
        rows=manifest.rows,
        epsilon=certificate.epsilon,
        delta=certificate.delta,
        rho=float(Fraction(certificate.rho_budget)),
        drawn=(),
    )


def is_whole(folder: Path) -> bool:
    """Whether a released folder holds exactly the files of its manifest, unchanged, and no link."""
    manifest = manifest_if_readable(folder)
    links = folder.is_symlink() or any(path.is_symlink() for path in folder.rglob("*"))
    return manifest is not None and not links and manifest.files == files_in(folder)


def _as_asked(folder: Path, request: Request) -> bool:
    """Whether the folder says what the request says now: its formats, its ``about`` and descriptions may be others."""
    manifest = manifest_if_readable(folder)
    return manifest is not None and manifest.spec == request.spec.public()


def _add_tables(store: Store, refs: Mapping[str, StepRefs], synthetic: ArtifactRef, folder: Path) -> None:
    store.add_released(synthetic, folder, "synthetic.parquet")
    for name, source in marginal_files(refs).items():
        step, table = source.split(".")
        store.add_released(refs[step].tables[table], folder, name)


def marginal_files(steps: Iterable[str]) -> dict[str, str]:
    """Released file -> table of a run of these steps: all that the synthetic table was made from."""
    rounds = sum(step.startswith(MEASURE_AGAIN) for step in steps)
    return {**MARGINALS, **released_tables(rounds)}


def _publish_private(run: Opened, refs: Mapping[str, StepRefs]) -> None:
    """Repair counts as readable JSON beside run.json; the encoded rows stay in the private store."""
    table = run.shell.store.read_table(refs["encode"].tables["repairs"])
    where = {name: ref.path for r in refs.values() for name, ref in r.tables.items() if ref.zone == "private"}
    write_json(run.private_folder / "repairs.json", {"repairs": table.to_pylist(), "tables": where})


def certificate_of(shell: Shell, refs: Mapping[str, StepRefs]) -> Certificate:
    """The run's certificate; made once and kept, since the data set's total grows with later runs."""
    record = f"certificate-v2-{shell.run}"
    kept = shell.records.load_as(record, Certificate)
    if kept is not None:
        return kept
    spec = shell.request.spec
    stages = [_stage(shell, s.name, refs) for s in shell.release_steps]
    spent = sum((total_rho(queries) for _, queries in stages), start=total_rho([]))
    summary = shell.ledger.summary(spec.dataset)[0]
    certificate = Certificate(
        run=shell.run,
        dataset=spec.dataset,
        epsilon=spec.privacy.epsilon,
        delta=spec.privacy.delta,
        unit_of_protection=spec.unit.describe(),
        records_per_person=spec.unit.records,
        price=PRICE[shell.request.pricing],
        composition=COMPOSITION[spec.accountant],
        accountant=spec.accountant,
        rho_budget=str(shell.request.total_rho()),
        rho_spent=rho_text(spent),
        stages=[cost for cost, _ in stages],
        dataset_total=Total(
            rho=str(summary.rho),
            rho_cap=str(summary.cap_rho),
            epsilon=summary.epsilon,
            delta=summary.cap.delta,
            epsilon_cap=summary.cap.epsilon,
            accountant=summary.accountant,
        ),
    )
    shell.records.save(record, certificate.model_dump(mode="json"))
    return certificate


def _stage(shell: Shell, step: str, refs: Mapping[str, StepRefs]) -> tuple[StageCost, list[Query]]:
    queries = receipts_from_table(shell.store.read_table(refs[step].tables["receipts"]))
    groups = [_group(list(members)) for _, members in groupby(queries, key=lambda q: (q.sensitivity, q.sigma))]
    cost = StageCost(
        step=step,
        reason=REASONS[_reason(shell.request, step)],
        rho_budget=str(shell.request.stage_rho(step)),
        rho_spent=rho_text(total_rho(queries)),
        groups=groups,
    )
    return cost, queries


def _reason(request: Request, step: str) -> str:
    against_noisy = step == "indif_scores" and request.spec.selection.scores == "one_ways"
    return "indif_scores, one_ways" if against_noisy else base_name(step)


def _group(queries: list[Query]) -> QueryGroup:
    first = queries[0]
    names = [list(q.attributes) for q in queries] if len(queries) <= LISTED_QUERIES else None
    return QueryGroup(
        queries=len(queries),
        cells=sum(q.cells for q in queries),
        sensitivity=first.sensitivity,
        sigma=first.sigma,
        rho_each=str(first.rho),
        attributes=names,
    )


def write_manifest(shell: Shell, folder: Path, rows: int, made: Mapping[str, str]) -> None:
    """Write ``manifest.json`` over everything that is in the folder.

    ``rows``: rows of the synthetic table in it; ``made``: the versions that made its tables, by package.
    """
    manifest = Manifest(
        run=shell.run,
        differentially_private=shell.noise.private,
        rows=rows,
        spec=shell.request.spec.public(),
        column_order=list(shell.request.column_order),
        seeds={"synthesis": shell.request.spec.synthesis.seed},
        versions=dict(made),
        steps=[{"step": s.name, "kind": str(s.kind), "version": s.version} for s in shell.steps],
        files=files_in(folder),
    )
    (folder / "manifest.json").write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
