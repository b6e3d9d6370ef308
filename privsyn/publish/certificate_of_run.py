"""The certificate of a run: the promise, with every price and noise that it follows from; and its packages' versions.

The versions of the packages that made the tables are kept when a release's folder is written again.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from privsyn.data_contracts.artifacts import LookKind
from privsyn.data_contracts.certificate import (
    Certificate,
    LedgerHead,
    NoRelations,
    PublishedTheorems,
    QueryGroup,
    StageCost,
    Total,
    explain_missing_relations,
)
from privsyn.data_contracts.domain import Clique
from privsyn.data_contracts.receipts import SMOOTHING, Pricing, Query, format_rho, sum_rho
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.execute import Run
from privsyn.engine.plan import Plan
from privsyn.engine.step import ReleaseStep, list_looks, release_steps, say
from privsyn.engine.step_tables import StepRefs
from privsyn.pipelines.budget import share_trends
from privsyn.publish.formats.tables import list_files
from privsyn.storage.records import Records, VersionsRecord, locate_private_records
from privsyn.storage.released_files import read_manifest_if_readable
from privsyn.tasks.estimation.noisy import count_marginals, read_receipts
from privsyn.tasks.privacy.accountant import Accountant, convert_rho_to_epsilon
from privsyn.tasks.privacy.gaussian_dp import SAFETY_MARGIN

LISTED_QUERIES = 5_000
"""Largest group of queries that the certificate lists one by one; its receipts table always does."""

_ZCDP = "zCDP adds up over all queries (Bun and Steinke 2016, Lemma 2.3; PrivSyn, Theorem 1); the sum rho is converted"

COMPOSITION: dict[Accountant, str] = {
    "gaussian": "prices add up over all queries, even if later ones depend on earlier answers (Smith and Thakurta "
    "2022; own proof in docs/privacy.md). Together they keep mu-Gaussian differential privacy with mu = sqrt(2 rho). "
    "Balle and Wang 2018, Theorem 8, converts it to (epsilon, delta), after a safety margin: "
    f"epsilon - {float(SAFETY_MARGIN):g} and delta / (1 + {float(SAFETY_MARGIN):g})",
    "tight": f"{_ZCDP} to (epsilon, delta) by Canonne, Kamath and Steinke 2020, Corollary 13",
    "paper": f"{_ZCDP} to (epsilon, delta) by rho + 2 sqrt(rho ln(1/delta)) = epsilon (PrivSyn, Theorem 2)",
}
"""Accountant -> how prices compose to the promise."""

PUBLISHED_THEOREMS = (
    "rests on published theorems only. A query of this noise costs at most its price in zCDP (Canonne, Kamath and "
    "Steinke 2020, Theorem 14). Prices add up, even if later queries depend on earlier answers (Bun and Steinke 2016, "
    "Lemma 2.3). Corollary 13 of Canonne, Kamath and Steinke converts rho_budget, which was fixed beforehand"
)
"""Why :attr:`Certificate.by_published_theorems` holds with any accountant."""

PRICE: dict[Pricing, str] = {
    "gaussian": f"rho = sensitivity^2 / (2 (sigma^2 - {SMOOTHING})): but for a factor within exp(+-4e-26) a count, "
    f"discrete Gaussian noise is continuous Gaussian noise of variance sigma^2 - {SMOOTHING}, rounded at random "
    "(docs/privacy.md)",
    "zcdp": "rho = sensitivity^2 / (2 sigma^2), Canonne, Kamath and Steinke 2020, Theorem 14",
}
"""Pricing -> formula of a query's price."""

PRIOR_PROMISE = (
    "The prior is declared public, so the guarantee covers what this release says beyond it. It protects the persons "
    "of the private table, and nobody in the prior. An earlier release of the same persons is repeated by this "
    "one: the total of the data set bounds both together, not the epsilon of this release alone."
)
"""How a prior changes the promise."""

CELLS_PROMISE = (
    "The released counts of an earlier release chose the cells of these columns, so no look of this release chose them "
    "and none was paid for. The cells repeat what that release says of the persons in it: the total of the data set "
    "bounds both together, not the epsilon of this release alone."
)
"""How cells of an earlier release change the promise."""

TOTALS_PROMISE = (
    "The totals are declared public. They are constants of this release, which never compares them with the private "
    "table. Given them, the guarantee holds for every pair of neighbouring tables, with these totals or not. It does "
    "not cover what the totals themselves say about a person; their publisher answers for that. If the totals are "
    "exact counts of the private table, two tables with the same totals differ by at least two persons. Readers who "
    "know the totals should then read the guarantee as one for adding or removing two persons."
)
"""How known totals change the promise."""

UNMEASURED_PROMISE = (
    "no look at the private table asked about these columns; their values are drawn at random from the public request, "
    "say nothing about the private table and cost no budget"
)
"""The promise for columns that are not measured."""


def build_certificate(run: Run, refs: Mapping[str, StepRefs]) -> Certificate:
    """Return the run's certificate.

    It is made once and stored, since later runs change the data set's total and the ledger.
    """
    record = _name_record(run.name)
    recorded = run.records.load_as(record, Certificate)
    if recorded is not None:
        return recorded
    spec = run.request.spec
    unmeasured = spec.unmeasured_columns
    stages = [_describe_stage(run, step, refs) for step in run.release_steps]
    spent = sum((sum_rho(queries) for _, queries in stages), start=sum_rho([]))
    summary, entries = run.ledger.summary(spec.dataset)[0], run.ledger.entries()
    costs = [cost for cost, _ in stages]
    relations: NoRelations | None = None
    makes_rows = any(step.name == "decode" for step in run.steps)
    if makes_rows and list_measured_relations(run.plan, costs) == []:
        trends = bool(share_trends(run.request))
        relations = explain_missing_relations(prior=spec.prior is not None, trends=trends)
    certificate = Certificate(
        run=run.name,
        dataset=spec.dataset,
        epsilon=spec.privacy.epsilon,
        delta=spec.privacy.delta,
        neighbours=f"add or remove one {spec.unit.one}",
        sensitivity=f"L2 norm under adding or removing one {spec.unit.one}",
        unit_of_protection=spec.describe_unit(),
        records_per_person=spec.records,
        price=PRICE[run.request.pricing],
        composition=COMPOSITION[spec.effective_accountant],
        accountant=spec.effective_accountant,
        rho_budget=str(run.request.total_rho),
        rho_spent=format_rho(spent),
        stages=costs,
        dataset_total=Total(
            rho=str(summary.rho),
            rho_cap=str(summary.cap_rho),
            epsilon=summary.epsilon,
            delta=summary.cap.delta,
            epsilon_cap=summary.cap.epsilon,
            accountant=summary.accountant,
        ),
        by_published_theorems=PublishedTheorems(
            epsilon=convert_rho_to_epsilon(run.request.total_rho, spec.privacy.delta, "tight"),
            delta=spec.privacy.delta,
            reason=PUBLISHED_THEOREMS,
        ),
        ledger=LedgerHead(entries=entries[-1].id, hash=entries[-1].hash),
        targets=spec.targets() or None,
        improves=None if spec.improves is None else [look.run for look in spec.improves.earlier],
        prior=None if spec.prior is None else {**spec.prior.public(), "promise": PRIOR_PROMISE},
        cells=None
        if spec.cells is None
        else {"run": spec.cells.run, "columns": list(spec.cells.columns), "promise": CELLS_PROMISE},
        totals=list_stated_totals(spec),
        not_measured={"columns": list(unmeasured), "promise": UNMEASURED_PROMISE} if unmeasured else None,
        relations=relations,
    )
    run.records.save(record, certificate.model_dump(mode="json"))
    return certificate


def list_stated_totals(spec: ReleaseSpec) -> dict[str, Any] | None:
    """Return the totals as the certificate states them; None without any.  The manifest has their counts."""
    if not spec.totals:
        return None
    return {"stated": [total.public() for total in spec.totals], "promise": TOTALS_PROMISE}


class Relation(NamedTuple):
    """Columns that were counted together, and the standard deviation of a count's noise."""

    columns: Clique
    sigma: float


def list_measured_relations(plan: Plan, stages: Sequence[StageCost]) -> list[Relation] | None:
    """Return every set of two or more columns that were counted together, smallest noise first.

    ``stages``: of the certificate.  None if they do not list them because there are too many.
    """
    counted = {step.name for step in release_steps(plan.steps) if step.look.noise_of == "a count"}
    by_code = {look.name for look in list_looks(plan.steps, LookKind.MARGINALS)}
    best: dict[Clique, float] = {}
    for stage in stages:
        relations: list[Relation] = []
        for group in stage.groups if stage.step in counted else ():
            if group.attributes is None:
                return None
            relations += [Relation(tuple(names), group.sigma) for names in group.attributes]
        if stage.step in by_code:
            relations = relations[: count_marginals([relation.columns for relation in relations])]
        for columns, sigma in relations:
            if len(columns) > 1:
                best[columns] = min(sigma, best.get(columns, sigma))
    return sorted((Relation(columns, sigma) for columns, sigma in best.items()), key=lambda r: (r.sigma, r.columns))


def is_certified(private_root: Path, dataset: str, run: str) -> bool:
    """Return whether this private folder has a certificate of the run, which was published or about to be."""
    return locate_private_records(private_root, dataset).joinpath(f"{_name_record(run)}.json").is_file()


def _name_record(run: str) -> str:
    return f"certificate-v2-{run}"


def _describe_stage(run: Run, step: ReleaseStep, refs: Mapping[str, StepRefs]) -> tuple[StageCost, list[Query]]:
    queries = read_receipts(run.store.read_table(refs[step.name].tables["receipts"]))
    groups = [_group_queries(list(members)) for _, members in groupby(queries, key=lambda q: (q.sensitivity, q.sigma))]
    cost = StageCost(
        step=step.name,
        reason=say(step.look.reason, run.request),
        rho_budget=str(step.rho(run.request)),
        rho_spent=format_rho(sum_rho(queries)),
        groups=groups,
    )
    return cost, queries


def _group_queries(queries: list[Query]) -> QueryGroup:
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


PACKAGES = (
    "privsyn-flows",
    "prefect",
    "great-expectations",
    "pandas",
    "pyarrow",
    "numpy",
    "numba",
    "networkx",
    "opendp",
)


@cache
def list_versions() -> Mapping[str, str]:
    """Return package -> installed version."""
    return {"python": platform.python_version(), **{p: version(p) for p in PACKAGES}}


def list_file_versions(records: Records, building: Path, published: Path) -> dict[str, str]:
    """Return package -> version that made the files in the folder ``building``.

    The versions are the installed versions, unless the same bytes were already published in ``published``.  In that
    case they are the earlier versions, from the private record or, without a record, from that folder's manifest.
    """
    hashes, name = {name: file.sha256 for name, file in list_files(building).items()}, f"versions-{published.name}"
    record = records.load_as(name, VersionsRecord)
    if record is None or record.files != hashes:
        manifest = read_manifest_if_readable(published)
        known = set() if manifest is None else {(name, file.sha256) for name, file in manifest.files.items()}
        same = manifest is not None and hashes.items() <= known
        packages = (manifest.versions if manifest is not None and same else {}) or list_versions()
        record = VersionsRecord(files=hashes, versions=list(packages.items()))  # in their order: records sort names
        records.save(name, record.model_dump(mode="json"))
    return dict(record.versions)
