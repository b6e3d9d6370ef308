"""Releasing frequent itemsets: the run, and the released folder."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from privsyn.base.settings import Settings
from privsyn.base.telemetry import Telemetry
from privsyn.data_contracts.certificate import Certificate
from privsyn.engine.choose_accountant import settle_accountant
from privsyn.engine.execute import ReportProgress, Run
from privsyn.engine.open_run import open_run
from privsyn.engine.plan import Plan
from privsyn.engine.proposal import Proposal, ignore_progress
from privsyn.engine.request import Request
from privsyn.engine.step import list_published_files, run_steps
from privsyn.engine.step_tables import StepRefs
from privsyn.extras.itemsets.itemset_spec import ItemsetSpec
from privsyn.extras.itemsets.itemset_spec_file import release_spec_of
from privsyn.extras.itemsets.steps import build_itemset_steps
from privsyn.extras.itemsets.transaction_source import open_transactions
from privsyn.publish.certificate_of_run import build_certificate, list_file_versions
from privsyn.publish.folder import REPAIRS, locate_folder, write_manifest
from privsyn.publish.markdown import render_note
from privsyn.publish.release_note import Looks, list_looks
from privsyn.storage.records import write_json
from privsyn.tasks.privacy.noise import NoiseSource, OpenDPNoise

ASKS = "itemsets"
"""The request beyond the release spec, in a run's notes."""

_NOT_ASKED = {"data", "items", "items_file", "public_files", "privacy", "budget"}
"""Fields that are places, or that the release spec has."""


class ItemsetSummary(BaseModel):
    """The released itemsets and their cost.  It holds noisy figures and public facts only."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str
    released: str
    private: str
    itemsets: int
    epsilon: float
    delta: float
    rho: float
    drawn: tuple[str, ...]


def plan_itemsets(spec: ItemsetSpec) -> Plan:
    """Return the public plan of a release of ``spec``."""
    return Plan(
        Request(release_spec_of(spec)),
        build_itemset_steps(spec),
        asks={ASKS: spec.model_dump(mode="json", exclude=_NOT_ASKED)},
        name=f"{spec.dataset}-itemsets",
        output="itemsets",
    )


def publish_itemsets(
    asked: ItemsetSpec,
    settings: Settings,
    *,
    fresh: bool = False,
    new_dataset: str | None = None,
    noise: NoiseSource | None = None,
    report: ReportProgress = ignore_progress,
) -> ItemsetSummary:
    """Release the frequent itemsets that ``asked`` asks for, charged to its data set; or find them.

    The same request on the same table again draws and costs nothing, unless ``fresh``.  ``new_dataset``: why a table
    that was released under another ``dataset`` gets a second lifetime budget.  A ``noise`` other than the
    release source keeps everything in the private zone.

    Privacy: the released folder is (epsilon, delta)-differentially private for adding or removing one person.  A
    person has at most ``transactions_per_person`` transactions.  The guarantee follows from the prices of the three
    release steps, where later steps depend on earlier answers (adaptive composition).

    Raises RequestError for a wrong request or table.  Raises BudgetRefusedError if the release would exceed the cap:
    then nothing was spent.
    """
    asked = settle_accountant(asked, settings, plan_itemsets, fresh=fresh)
    proposal = Proposal(
        plan=plan_itemsets(asked),
        settings=settings,
        fresh=fresh,
        new_dataset=new_dataset,
        opened=lambda data, release_spec: open_transactions(data, release_spec, asked),
        noise=noise or OpenDPNoise(),
        report=report,
    )
    telemetry = Telemetry(settings)
    with open_run(proposal) as run, telemetry.observe(run.dataset, run.name) as observed:
        summary = _publish(run, asked, run_steps(run.steps, observed.trace(run.run_reported)))
        observed.released = summary.run
        return summary


def _publish(run: Run, spec: ItemsetSpec, refs: Mapping[str, StepRefs]) -> ItemsetSummary:
    """Write the released folder, or find it whole; the private folder gets the repair counts."""
    certificate = build_certificate(run, refs).model_copy(update={"unit_of_protection": spec.unit_of_protection})
    table = run.store.read_table(refs["itemsets"].tables["itemsets"])
    note = write_itemset_note(spec, certificate, table, list_looks(run.steps), private=run.noise.private)
    repairs = run.store.read_table(refs["transactions"].tables["repairs"])
    write_json(run.private_folder / REPAIRS, {"repairs": repairs.to_pylist()})

    def build(folder: Path) -> None:
        for name, source in list_published_files(run.steps).items():
            step, output = source.split(".")
            run.store.add_released(refs[step].tables[output], folder, name)
        _write_csv(folder)
        versions = list_file_versions(run.records, folder, run.released_folder)
        (folder / "request.json").write_text(json.dumps(spec.public(), indent=2) + "\n", encoding="utf-8")
        (folder / "certificate.json").write_text(certificate.model_dump_json(indent=2) + "\n", encoding="utf-8")
        (folder / "README.md").write_text(note, encoding="utf-8")
        write_manifest(run, folder, 0, versions, spec.public())

    return ItemsetSummary(
        run=run.name,
        released=str(locate_folder(run, build)),
        private=str(run.private_folder),
        itemsets=table.num_rows,
        epsilon=spec.privacy.epsilon,
        delta=spec.privacy.delta,
        rho=float(run.request.total_rho),
        drawn=tuple(run.drawn),
    )


def _write_csv(folder: Path) -> None:
    """Write the itemsets as CSV beside the Parquet file; a set of items is a JSON list."""
    table, text = pq.read_table(folder / "itemsets.parquet"), io.StringIO()
    writer = csv.DictWriter(text, table.column_names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row, "items": json.dumps(row["items"], ensure_ascii=False)} for row in table.to_pylist())
    (folder / "itemsets.csv").write_text(text.getvalue(), encoding="utf-8")


_SHOWN = 10


def write_itemset_note(
    spec: ItemsetSpec, certificate: Certificate, table: pa.Table, looks: Looks, *, private: bool
) -> str:
    """Return Markdown: what was released, what is promised, the first itemsets, how to read them, what they cost."""
    return render_note(
        "itemsets.md.j2",
        __package__,
        c=certificate,
        looks=looks,
        asked=spec,
        private=private,
        count=table.num_rows,
        first=table.slice(0, _SHOWN).to_pylist(),
    )
