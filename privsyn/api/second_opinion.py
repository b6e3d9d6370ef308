"""The second opinion on every certificate that a ledger knows, in a separate file; certificates are not changed.

It reads released folders and the ledger, no private table, and spends nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from privsyn.api.ledger_comparison import list_certified_folders, list_receipts_files
from privsyn.base.errors import RequestError
from privsyn.base.registry import need_package
from privsyn.base.settings import Settings
from privsyn.data_contracts.certificate import Certificate
from privsyn.data_contracts.receipts import Query
from privsyn.ledgers.ledger import Ledger
from privsyn.storage.released_files import read_certificate
from privsyn.tasks.estimation.noisy import read_receipts
from privsyn.tasks.privacy.second_opinion import SecondOpinion, form_second_opinion, list_libraries


@dataclass(frozen=True)
class CertificateOpinion:
    """The second opinion on one certificate; ``tables``: release step -> the receipts file, or "certificate"."""

    run: str
    dataset: str
    tables: dict[str, str]
    opinion: SecondOpinion

    def as_json(self) -> dict[str, Any]:
        """Return the same, JSON-ready."""
        return {"run": self.run, "dataset": self.dataset, "receipts": self.tables, **self.opinion.as_json()}


@dataclass(frozen=True)
class SecondOpinions:
    """The second opinions on all certificates, and the libraries that gave them."""

    libraries: dict[str, str]
    certificates: tuple[CertificateOpinion, ...]

    @property
    def problems(self) -> list[str]:
        """Return a sentence for each certificate that a library contradicts."""
        return [f"{one.run}: {problem}" for one in self.certificates for problem in one.opinion.problems]

    def format_json(self) -> str:
        """Return the content of the file."""
        content = {
            "libraries": self.libraries,
            "problems": self.problems,
            "certificates": [one.as_json() for one in self.certificates],
        }
        return json.dumps(content, indent=2) + "\n"


def form_second_opinions(
    ledger: Ledger, settings: Settings, dataset: str | None = None, against: Sequence[Path] = ()
) -> SecondOpinions:
    """Return the prices that OpenDP and dp-accounting compute from the receipts of every known certificate.

    ``dataset`` and ``against``: as in ``ledger verify``.  Raises RequestError if the extra ``second-opinion`` is not
    installed.
    """
    with need_package("dp-accounting", "a second opinion", "second-opinion", ""):
        libraries = list_libraries()
    opinions = []
    for folder in list_certified_folders(ledger, settings, dataset, against):
        try:
            certificate = read_certificate(folder)
        except RequestError:
            continue  # the comparison with the ledger reports it
        if dataset in (None, certificate.dataset):
            opinions.append(_judge_certificate(folder, certificate))
    return SecondOpinions(libraries, tuple(opinions))


def _judge_certificate(folder: Path, certificate: Certificate) -> CertificateOpinion:
    files, tables, queries = list_receipts_files(folder), dict[str, str](), list[Query]()
    for stage in certificate.stages:
        file = files.get(stage.step)
        tables[stage.step] = "certificate" if file is None else file.relative_to(folder).as_posix()
        if file is not None:
            queries += read_receipts(pq.read_table(file))
            continue
        for group in stage.groups:
            queries += [Query((), group.cells, group.sensitivity, group.sigma)] * group.queries
    opinion = form_second_opinion(queries, certificate.epsilon, certificate.delta, certificate.accountant)
    return CertificateOpinion(certificate.run, certificate.dataset, tables, opinion)
