"""A release's page in Prefect's UI: note, certificate, budget, files, overview, and the progress of long steps.

Belongs here: Prefect artifacts and their words and pictures.  Does not belong here: any figure that is not released, in
the public spec or in the ledger.  Nothing here may fail a release, which is complete, published and paid for by then;
only an error's type is logged.  The budget is a bar and a table: other releases, this one, and the rest of the cap.

A release step reports answered and planned queries, and a postprocess step its iterations; both are public.  Progress
through private rows would reveal their number, so a transform step's bar jumps from 0 to 100 at the end.  The run time
shows anyway that a step is long; the promise does not cover it.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import cast
from uuid import UUID

import pyarrow.parquet as pq
from prefect import get_run_logger
from prefect.artifacts import (
    create_image_artifact,
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext

from privsyn.base.errors import BudgetRefusedError, ContractError
from privsyn.base.settings import Settings
from privsyn.base.wording import format_share
from privsyn.data_contracts.artifacts import StepKind
from privsyn.data_contracts.certificate import Certificate, Manifest
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.execute import Run
from privsyn.engine.step import Step
from privsyn.engine.step_tables import StepRefs, read_verdicts
from privsyn.flows.metrics import note_success
from privsyn.flows.private_errors import FORM
from privsyn.flows.states import describe_budget
from privsyn.ledgers.audit import AT_CAP_DELTA, DatasetSummary, Entry, charge_states
from privsyn.ledgers.ledger import Ledger
from privsyn.publish.certificate_of_run import build_certificate
from privsyn.publish.folder import Published
from privsyn.publish.formats.tables import name_linked_file
from privsyn.publish.markdown import render_note
from privsyn.publish.release_note import NAME, Looks, draw_picture, list_looks, make_data_uri
from privsyn.storage.released_files import read_manifest

ROWS_OF_CARD = 5
"""How many of its rows the card of a table shows."""

BAR_AFTER_SECONDS = 1.0
"""Seconds until a step is long enough for a bar."""

BAR_EVERY_SECONDS = 2.0
"""Seconds between two movements of it."""

_CLOSING = 5.0
"""Seconds that the end of a step waits for a slow server, at most."""

UNITS = {
    StepKind.RELEASE: "queries answered",
    StepKind.POSTPROCESS: "iterations done",
    StepKind.TRANSFORM: "it goes through private rows, so how far it is stays unsaid",
}


def format_artifact_key(kind: str, dataset: str) -> str:
    """Return the key of a data set's artifact, which collects its history: ``certificate-people``."""
    return f"{kind}-{dataset.replace('_', '-')}"


def name_run(name: str) -> None:
    """Give the flow run the release's name, to distinguish the runs of one data set.

    Outside a flow run, does nothing; an error is logged and fails nothing.
    """
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return
    with ignore_page_errors("name"), get_client(sync_client=True) as client:
        client.update_flow_run(context.flow_run.id, name=name)


def show_release(run: Run, refs: Mapping[str, StepRefs], published: Published) -> None:
    """Show a finished release on the page of its flow run.  Outside a flow run, does nothing."""
    if FlowRunContext.get() is None:
        return
    release = f"{run.name} of {run.dataset}"
    with ignore_page_errors("certificate"):
        page = format_certificate_page(build_certificate(run, refs), list_looks(run.steps))
        create_markdown_artifact(
            page,
            key=format_artifact_key("certificate", run.dataset),
            description=f"What is promised, and why it holds: {release}",
        )
    with ignore_page_errors("budget"):
        _show_budget(run.ledger, run.dataset, _collect_charges(run), _format_paid(run))
    with ignore_page_errors("list of contracts"):
        rows = list_contract_rows(run)
        create_table_artifact(
            table=rows,
            key=format_artifact_key("contracts", run.dataset),
            description=f"{count_held(rows)}: {release}. Great Expectations held the tables between the steps to "
            "these rules. Each blocks: a table that breaks one is not written.",
        )
    with ignore_page_errors("label"):
        label_run(describe_budget(run.ledger.summary(run.dataset)[0], run.request.total_rho, drawn=bool(run.drawn)))
    with ignore_page_errors("gauge"):
        note_success(run.ledger.summary(run.dataset)[0], Settings())
    with ignore_page_errors("list of files"):
        manifest, web = read_manifest(published.folder), Settings().released_url
        page = format_files_page(manifest, published.folder, run.private_folder, run.private_report, web)
        about = f"What to publish, what to keep: {release}"
        create_markdown_artifact(page, key=format_artifact_key("files", run.dataset), description=about)
        _link_report(run)
    with ignore_page_errors("tables"):
        _show_tables(run.request.spec, published, release)
    words = ""
    with ignore_page_errors("overview"):
        words = _show_overview(run, refs, release)
    with ignore_page_errors("note"):
        note = published.note
        if published.pairs:  # the server's page cannot read the folder
            note = note.replace(f"]({NAME})", f"]({make_data_uri(draw_picture(published.pairs))})")
        create_markdown_artifact(
            note + words,
            key=format_artifact_key("release-note", run.dataset),
            description=f"The release in plain words: {release}",
        )


def label_run(labels: Mapping[str, str | float | int]) -> None:
    """Label the flow run, if there is one: the server makes gauges and alerts from labels."""
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return
    with get_client(sync_client=True) as client:
        client.update_flow_run_labels(context.flow_run.id, dict(labels))


def list_contract_rows(run: Run) -> list[dict[str, str]]:
    """Return one row per rule of every step's tables: step, table, column, rule, and whether it held."""
    rows = []
    for step in run.steps:
        verdicts = read_verdicts(run.keys[step.name], run.records)
        rows += [
            {
                "step": step.title,
                "table": verdict.table,
                "column": verdict.column,
                "rule": verdict.expectation,
                "held": "yes" if verdict.held else "no",
            }
            for verdict in verdicts
        ]
        if not verdicts:
            held = "yes, when an earlier run wrote it; that run kept no list" if step.outputs else "no tables"
            rows.append({"step": step.title, "table": ", ".join(step.outputs), "column": "", "rule": "", "held": held})
    return rows


def count_held(rows: Iterable[Mapping[str, str]]) -> str:
    """Return ``145 of 145 rules held``, without rows of steps that have no rules."""
    verdicts = [row["held"] for row in rows if row["rule"]]
    return f"{verdicts.count('yes')} of {len(verdicts)} rules held"


def show_refusal(dataset: str, error: BudgetRefusedError) -> None:
    """Show the reason for a refusal, and the rest of the budget, on the flow run's page.

    The page shortens a state's message; this shows all of it.  Outside a flow run, or without a ledger, does nothing.
    """
    if FlowRunContext.get() is None:
        return
    with ignore_page_errors("budget"):
        _show_budget(Ledger(Settings().ledger, create=False), dataset, (), f"\n\n**Refused.** {error.paragraph(FORM)}")


def show_broken_contract(dataset: str, error: ContractError) -> None:
    """Show the failures of a broken contract, one row each, on the flow run's page.  Outside a flow run, does nothing.

    If showing them fails, the run still ends with the broken contract.
    """
    if FlowRunContext.get() is None:
        return
    with ignore_page_errors("broken contract"):
        key = format_artifact_key("contract-failures", dataset)
        create_table_artifact(table=error.failures, key=key, description=error.paragraph(FORM))


@contextmanager
def ignore_page_errors(part: str) -> Iterator[None]:
    """Skip what cannot be shown, and log the error's type: the page never fails a release."""
    try:
        yield
    except Exception as error:  # whatever it is: the release is whole and published
        get_run_logger().warning("The %s of the run is not shown (%s).", part, type(error).__name__)


def _show_budget(ledger: Ledger, dataset: str, charges: tuple[str, ...], now: str) -> None:
    """Show the budget under one key per data set, so that the artifact's history is the budget's history."""
    budget = read_budget(ledger, dataset, charges)
    if budget is not None:
        page, key = format_budget_page(budget, ledger.name, now), format_artifact_key("budget", dataset)
        create_markdown_artifact(page, key=key, description=f"Spent, this release, left: the budget of {dataset}")


def _collect_charges(run: Run) -> tuple[str, ...]:
    return tuple(run.keys[step.name] for step in run.release_steps)


def _format_paid(run: Run) -> str:
    drawn = [step.title for step in run.release_steps if step.name in run.drawn]
    if not drawn:
        return "This run drew no noise and cost nothing: an earlier run had paid for all of it."
    return f"This run drew the noise of: {', '.join(drawn)}."


def _show_tables(spec: ReleaseSpec, published: Published, release: str) -> None:
    """Show a card for each of several tables: its number of rows, its parent table, and its first rows."""
    for name in spec.table_names:
        with pq.ParquetFile(published.folder / name_linked_file(name)) as file:
            rows = file.metadata.num_rows
            first = [row for batch in islice(file.iter_batches(ROWS_OF_CARD), 1) for row in batch.to_pylist()]
        above = spec.tables[name].of
        about = f"{name}: {rows:,} synthetic rows" + (f", each of a row of {above}" if above else "")
        create_table_artifact(
            table=[{column: "" if value is None else str(value) for column, value in row.items()} for row in first],
            key=format_artifact_key(f"table-{re.sub('[^a-z0-9]+', '-', name.lower())}", spec.dataset),
            description=f"{about}; the first {ROWS_OF_CARD} are shown: {release}",
        )


def link_private_results(place: Path, rows: str, text: str, kind: str, dataset: str) -> None:
    """Link what was computed from real ``rows`` on the flow run's page, if there is one; the content stays there."""
    if FlowRunContext.get() is not None:
        words = (
            f"Computed from {rows}, never to be released. Open `{place}` on the machine of the private folder; "
            "browsers do not follow links from a web page to a file. No figure of it is stored here."
        )
        create_link_artifact(
            link=place.as_uri(), link_text=text, key=format_artifact_key(kind, dataset), description=words
        )


def _link_report(run: Run) -> None:
    """Show the place of the private report, which is no secret; the content stays there."""
    place, name = run.private_report, run.name
    state = "It is there." if place.exists() else f"It is not there yet: `privsyn evaluate {name}` makes it."
    words = (
        f"The private report of {name} compares it with the real rows and must not be released. {state} Open `{place}` "
        "on the machine of the private folder. Browsers do not follow links from a web page to a file."
    )
    create_link_artifact(
        link=place.as_uri(),
        link_text=f"Private report of {name}",
        key=format_artifact_key("private-report", run.dataset),
        description=words,
    )


def _show_overview(run: Run, refs: Mapping[str, StepRefs], release: str) -> str:
    """Show the overview's table and picture, made from released tables only; return its words."""
    from privsyn.pipelines.budget import share_trends
    from privsyn.publish.noise_overview import (  # here: drawing packages load slowly
        ReleasedInputs,
        build_overview,
        write_overview,
    )
    from privsyn.publish.overview_chart import draw_in_subprocess, make_data_uri

    overview = build_overview(ReleasedInputs.of_run(run, refs), run.request.threads)
    about = f"Noise and synthesis by column, from released tables only: {release}"
    create_table_artifact(
        table=overview.column_rows(), key=format_artifact_key("columns", run.dataset), description=about
    )
    with ignore_page_errors("picture"):
        picture = make_data_uri(draw_in_subprocess(overview.one_ways, overview.marginals, title=f"Release {release}"))
        about = f"Noise and synthesis in one picture, from released tables only: {release}"
        create_image_artifact(image_url=picture, key=format_artifact_key("overview", run.dataset), description=about)
    trends = bool(share_trends(run.request))
    return "\n" + write_overview(overview, prior=run.request.spec.prior is not None, trends=trends)


def format_certificate_page(c: Certificate, looks: Looks) -> str:
    """Return Markdown: the promise, its price, and how one follows from the other."""
    return render_note("certificate.md.j2", c=c, looks=looks)


def format_files_page(manifest: Manifest, folder: Path, private: Path, report: Path, web: str) -> str:
    """Return Markdown: the released files with links, sizes and hashes, and the place of the private files.

    ``web``: the web address of the released root. If empty, the links name files, which browsers open only from their
    address bar.
    """
    return render_note(
        "files.md.j2",
        manifest=manifest,
        folder=folder,
        private=private,
        report=report,
        web=web,
        root=f"{web.rstrip('/')}/{folder.name}" if web else folder.as_uri(),
    )


OTHERS, THIS, LEFT = "other releases", "this release", "left"
COLOURS = {OTHERS: "#0072B2", THIS: "#D55E00", LEFT: "#e4e4e4"}  # blue and vermilion of Okabe and Ito, and grey
_WIDTH, _BAR = 640, 32


@dataclass(frozen=True)
class BudgetShares:
    """A data set's spending, and this release's part of it (rho)."""

    summary: DatasetSummary
    this: Fraction

    @classmethod
    def of(cls, summary: DatasetSummary, entries: Sequence[Entry], keys: Collection[str]) -> BudgetShares:
        """Return the shares by the ledger; ``keys``: the charges of this release, whichever run paid them."""
        charged = {key: state.rho for key, state in charge_states(entries).items() if state.holds}
        return cls(summary, sum((charged[key] for key in set(keys) & set(charged)), Fraction(0)))

    def parts(self) -> dict[str, Fraction]:
        """Name -> rho, in the order of the bar."""
        return {OTHERS: self.summary.rho - self.this, THIS: self.this, LEFT: self.summary.remaining_rho}

    def share(self, rho: Fraction) -> float:
        """Return a price as a share of the cap, 0 to 1."""
        return float(rho / self.summary.cap_rho)

    def format_share(self, rho: Fraction) -> str:
        """Return a price as a percentage of the cap."""
        return format_share(rho, self.summary.cap_rho)


def read_budget(ledger: Ledger, dataset: str, keys: Collection[str] = ()) -> BudgetShares | None:
    """Return the budget of ``dataset`` now; None if the ledger does not know it yet."""
    summaries = ledger.summary(dataset)
    return BudgetShares.of(summaries[0], ledger.entries(dataset), keys) if summaries else None


def format_budget_page(budget: BudgetShares, ledger: str, now: str) -> str:
    """Return Markdown: the bar, the table, and ``now``, the effect of this run; ``ledger``: its address in words."""
    return render_note(
        "budget.md.j2",
        budget=budget,
        bar=draw_bar_uri(budget),
        rows=[*budget.parts().items(), ("lifetime cap", budget.summary.cap_rho)],
        at_cap_delta=AT_CAP_DELTA,
        ledger=ledger,
        now=now,
    )


def draw_bar_uri(budget: BudgetShares) -> str:
    """Return the bar as an SVG picture in a data URI; the same budget gives the same bytes."""
    x, drawn = 0.0, []
    for name, rho in budget.parts().items():
        width = budget.share(rho) * _WIDTH
        drawn.append(f'<rect x="{x:.2f}" width="{width:.2f}" height="{_BAR}" fill="{COLOURS[name]}"/>')
        x += width
    legend = [
        f'<rect x="{i * 213}" y="{_BAR + 14}" width="12" height="12" fill="{COLOURS[name]}"/>'
        f'<text x="{i * 213 + 18}" y="{_BAR + 25}">{name}: {budget.format_share(rho)}</text>'
        for i, (name, rho) in enumerate(budget.parts().items())
    ]
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + 24}" height="{_BAR + 54}" '
        f'viewBox="-12 -12 {_WIDTH + 24} {_BAR + 54}" font-family="sans-serif" font-size="14">'
        f'<rect x="-12" y="-12" width="100%" height="100%" rx="6" fill="white"/>{"".join(drawn)}'
        f'<rect width="{_WIDTH}" height="{_BAR}" fill="none" stroke="#555"/>{"".join(legend)}</svg>'
    )
    return "data:image/svg+xml;base64," + b64encode(picture.encode()).decode("ascii")


def delete_bar(artifact: UUID) -> None:
    """Remove a bar from the run's page."""
    with get_client(sync_client=True) as client:
        client.delete_artifact(artifact)


class StepProgress:
    """A context around a step's task; its bar, if any, belongs to the flow run in which it is entered.

    On the run's graph, a task run's bar covers the names of neighbouring steps, and a run's bar the lowest names.  So a
    bar is deleted when its step succeeds.  A separate thread talks to the server; the step only sets a number.  Nothing
    here fails a step.
    """

    def __init__(self, step: Step) -> None:
        self._step, self._percent = step, 0.0
        self._done, self._ended_well = Event(), False
        self._thread = Thread(target=copy_context().run, args=(self._show,), daemon=True)

    def report(self, step: str, done: int, total: int) -> None:
        """Record the step's progress, unless it depends on private rows."""
        if self._step.kind is not StepKind.TRANSFORM and total > 0:
            self._percent = 100.0 * min(done / total, 1.0)

    def __enter__(self) -> StepProgress:
        """Start to wait until the step counts as long."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Show the end of the bar, if any, and remove it; a failed step's bar stays."""
        if error is None:
            self._percent, self._ended_well = 100.0, True
        self._done.set()
        self._thread.join(_CLOSING)

    def _show(self) -> None:
        if self._done.wait(BAR_AFTER_SECONDS):
            return
        try:
            begun = create_progress_artifact(
                progress=0.0,
                key=f"progress-{self._step.name.replace('_', '-').lower()}",
                description=f"{self._step.title}: {UNITS[self._step.kind]}",
            )
            artifact, shown = cast(UUID, begun), 0.0  # a coroutine only where an event loop runs
            while not self._done.wait(BAR_EVERY_SECONDS):
                shown = self._move(artifact, shown)
            self._move(artifact, shown)
            if self._ended_well:
                delete_bar(artifact)
        except Exception as error:  # a bar is not worth a step
            get_run_logger().warning("The progress of %s is not shown (%s).", self._step.title, type(error).__name__)

    def _move(self, artifact: UUID, shown: float) -> float:
        percent = self._percent
        if percent != shown:
            update_progress_artifact(artifact, percent)
        return percent
