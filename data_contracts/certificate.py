"""The certificate and the manifest of a release.

They have no path, time or exact count: everything in them is public.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

NO_RELATION_MEASURED: Final = "no relation was measured: columns are independent of each other"
"""A release's statement if no two columns were counted together."""

RELATIONS_OF_PRIOR: Final = "no relation was measured: any that the rows show is the public prior's"
"""The statement for a release with a public prior."""


RELATIONS_BY_TREND: Final = "no two columns were counted together: rows show only how numbers and moments rise together"
"""The statement for a release that asked for trends."""


NoRelations = Literal[
    "no relation was measured: columns are independent of each other",
    "no relation was measured: any that the rows show is the public prior's",
    "no two columns were counted together: rows show only how numbers and moments rise together",
]


def explain_missing_relations(*, prior: bool, trends: bool = False) -> NoRelations:
    """Return the statement in note, console, certificate and report if no two columns were counted together.

    ``trends``: whether the release asked how numbers and moments rise together.
    """
    if prior:
        return RELATIONS_OF_PRIOR
    return RELATIONS_BY_TREND if trends else NO_RELATION_MEASURED


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class QueryGroup(_Model):
    """Queries of one step that share sensitivity and sigma; ``attributes`` lists them unless very many."""

    queries: int
    cells: int
    sensitivity: int
    sigma: float
    rho_each: str
    attributes: list[list[str]] | None


class StageCost(_Model):
    """What one release step cost: its exact budget, and the sum of its prices rounded up at the 30th decimal.

    ``reason``: why its queries have the sensitivity stated in their groups.
    """

    step: str
    rho_budget: str
    rho_spent: str
    mechanism: Literal["discrete Gaussian"] = "discrete Gaussian"
    reason: str
    groups: list[QueryGroup]


class Total(_Model):
    """The data set's whole history in the ledger, this release included; ``accountant`` is its cap's."""

    rho: str
    rho_cap: str
    epsilon: float
    delta: float
    epsilon_cap: float
    accountant: Literal["gaussian", "tight"] = "tight"


class LedgerHead(_Model):
    """The ledger when the certificate was made: its number of entries, for all data sets, and the last entry's hash."""

    entries: int
    hash: str


class PublishedTheorems(_Model):
    """The promise of the same noise by published theorems alone: (``epsilon``, ``delta``), rounded up, and why."""

    epsilon: float
    delta: float
    reason: str


class Certificate(_Model):
    """The promise, to whom it is made, and the numbers from which it follows.

    ``ledger`` and ``by_published_theorems``: None in certificates of earlier versions, which leave them out.
    ``targets``: the fields ``focus`` and ``workload`` of the public request, and under ``tables`` the fields of each
    further table by its name; None where it has none.  ``prior``: the field of that name without the place of its file,
    and why it does not change the promise; None without one.  ``cells``: the columns whose cells the counts of another
    release chose, and why no look chose them; None without any.  ``totals``: the known totals without their counts,
    which the manifest has, and their effect on the promise; None without any.  ``not_measured``: the columns that no
    look asked about, and the meaning of their values; None without any.  ``improves``: the earlier runs whose looks are
    among ``stages``, so that the promise covers all of them together; None without any.  ``relations``:
    NO_RELATION_MEASURED or, with a prior, RELATIONS_OF_PRIOR; otherwise left out, as by earlier versions.
    """

    schema_version: Literal[1] = 1
    run: str
    dataset: str
    guarantee: Literal["(epsilon, delta)-differential privacy"] = "(epsilon, delta)-differential privacy"
    epsilon: float
    delta: float
    neighbours: str = Field(default="add or remove one person", pattern=r"^add or remove one (person|household)$")
    unit_of_protection: str
    records_per_person: int
    sensitivity: str = Field(
        default="L2 norm under adding or removing one person",
        pattern=r"^L2 norm under adding or removing one (person|household)$",
    )
    price: str
    composition: str
    accountant: Literal["gaussian", "tight", "paper"]
    rho_budget: str
    rho_spent: str
    stages: list[StageCost]
    dataset_total: Total
    ledger: LedgerHead | None = None
    by_published_theorems: PublishedTheorems | None = None
    targets: dict[str, Any] | None = None
    improves: list[str] | None = None
    prior: dict[str, Any] | None = None
    cells: dict[str, Any] | None = None
    totals: dict[str, Any] | None = None
    not_measured: dict[str, Any] | None = None
    relations: NoRelations | None = None

    @model_serializer(mode="wrap")
    def _drop_what_earlier_versions_lack(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = serialize(self)
        return {name: value for name, value in content.items() if value is not None}


class ManifestFile(_Model):
    """One released file."""

    sha256: str
    bytes: int


class Manifest(_Model):
    """The manifest of a release: its files, its public request and the versions that made it."""

    schema_version: Literal[1] = 1
    run: str
    differentially_private: bool
    rows: int
    spec: dict[str, Any]
    column_order: list[str]
    seeds: dict[str, int]
    versions: dict[str, str]
    steps: list[dict[str, Any]]
    files: dict[str, ManifestFile]
