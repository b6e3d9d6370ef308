"""One run of a stored release: every step is executed here, so that the privacy-critical wiring is written once.

The order in a step: integrity of the inputs -> contract of the outputs -> atomic write -> record.  A release step first
checks its stage, draws noise, claims the draw in the ledger, looks and adds; at the end it settles the ledger.

**One draw for one charge, through any crash.** A release step draws its noise *before* it looks at the data, and keeps
it in the private zone until the noisy table is written and the charge settled.  If it is killed before the noise file
is whole, the data has not been touched; if later, the re-run adds the same noise to the same counts.  So a charge never
covers two draws, and a draw is never charged twice.  The ledger records each draw before its look, one per charge;
copies of a private folder share it.

Where it died, and what the same request does next:

- after the reservation, before the noise file: it draws under the same charge.
- after the noise file: it adds the kept noise; a plan that changed is refused.
- after the record, before settling: it settles.
- before the released folder has its name: it publishes the same tables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from privsyn.base.errors import (
    MORE_MEMORY,
    OUT_OF_MEMORY,
    LedgerError,
    LostNoiseError,
    PrivsynError,
    RequestError,
    is_out_of_memory,
    locate_error,
)
from privsyn.base.interrupts import check_interrupts
from privsyn.base.wording import refer_to_action
from privsyn.counting.engine import RowWork
from privsyn.data_contracts.artifacts import ArtifactRef, StepKind, Zone
from privsyn.data_contracts.receipts import Query, sum_rho
from privsyn.engine.inputs import Inputs, PrivateAccess
from privsyn.engine.plan import Plan, compute_digest
from privsyn.engine.request import Request
from privsyn.engine.step import Output, ReleaseStep, Step, get_step, release_steps
from privsyn.engine.step_tables import (
    ContractVerdict,
    StepRefs,
    Validate,
    check_stage,
    read_recorded_outputs,
    validate_receipts,
    write_outputs,
)
from privsyn.ledgers.ledger import ChargeLine, Ledger
from privsyn.storage.records import Records, read_note
from privsyn.storage.store import Store
from privsyn.tasks.estimation import noisy
from privsyn.tasks.estimation.rungs import read_cuts
from privsyn.tasks.kernels.counting import choose_thread_count
from privsyn.tasks.privacy.noise import NoiseSource, draw_all

ReportProgress = Callable[[str, int, int], None]
"""Called with (step name, done, total)."""

_PLAN = b"plan"


class StepFailedError(PrivsynError):
    """An unexpected failure inside a step: its type and location, never its message, which may hold private values."""


@dataclass(kw_only=True)
class Run:
    """One run: its public plan, its access to private rows, its keys, store, ledger and noise.

    ``name``: the public name of the run and its folders.

    ``validate``: checks tables against their contracts and keeps the verdicts; None: a quick check, without verdicts.
    ``public_work``: the work of post-processing in parts, by workers without access to private rows; None: by the
    workers that count.  ``charged_as``: what the ledger records with each charge, besides its price and promise.
    """

    plan: Plan
    private: PrivateAccess
    keys: Mapping[str, str]
    name: str
    store: Store
    records: Records
    ledger: Ledger
    noise: NoiseSource
    report: ReportProgress = lambda step, done, total: None
    drawn: list[str] = field(default_factory=list)
    validate: Validate | None = None
    public_work: Callable[[], RowWork] | None = None
    charged_as: Mapping[str, str] = field(default_factory=dict)

    @property
    def request(self) -> Request:
        """The run's public request."""
        return self.plan.request

    def cut_request(self, refs: Mapping[str, StepRefs]) -> Request:
        """Return the run's request with the cells that a look cut; ``refs``: the run's tables by step."""
        for name in dict.fromkeys(step.cuts for step in self.steps if step.cuts):
            step, table = name.split(".")
            return self.request.cut_cells(read_cuts(self.store.read_table(refs[step].tables[table])))
        return self.request

    @property
    def steps(self) -> tuple[Step, ...]:
        """The run's steps, in order."""
        return self.plan.steps

    @property
    def release_steps(self) -> tuple[ReleaseStep, ...]:
        """The run's steps that turn private data into released data and cost budget."""
        return release_steps(self.steps)

    @property
    def private_folder(self) -> Path:
        """The run's own folder in the private zone."""
        return self.store.private_root / "runs" / self.name

    @property
    def private_report(self) -> Path:
        """The file of the run's private report, which ``privsyn evaluate`` writes."""
        return self.store.private_root / "reports" / self.name / "report.html"

    @property
    def released_folder(self) -> Path:
        """The run's folder in the released zone."""
        return self.store.released_root / self.name

    @property
    def dataset(self) -> str:
        """The ledger's name for the data set."""
        return self.request.spec.dataset

    def is_whole(self, step: Step) -> bool:
        """Return whether the step's outputs are on disk, unchanged since they passed their contracts."""
        return self._read_recorded(step) is not None

    @property
    def is_encoded(self) -> bool:
        """Whether the private table is no longer needed: everything that later steps need of it is stored."""
        return all(self.is_whole(step) for step in self.steps if step.encodes)

    def discard_transient_tables(self) -> None:
        """Delete the tables that *encode* kept for later looks, once all looks are taken.

        They stay while another run of the same rows, which was killed, still has to look.
        """
        if self._is_waited_for():
            return
        for step in self.steps:
            refs = self._read_recorded(step) if step.transient else None
            for name in step.transient:
                if refs is not None:
                    self.store.remove_table(refs.tables[name])

    def _is_waited_for(self) -> bool:
        """Return whether another run on the same encoded rows still has noise to draw."""
        encoded = {self.keys[step.name] for step in self.steps if step.transient}
        reserved = {key for key, state in self.ledger.states(self.dataset).items() if state == "reserved"}
        if not encoded or not reserved:
            return False
        keys = [read_note(note).get("keys", {}) for note in (self.store.private_root / "runs").glob("*/run.json")]
        return any(encoded & {*k.values()} and reserved & {*k.values()} for k in keys if isinstance(k, dict))

    def list_unsettled_charges(self) -> list[ChargeLine]:
        """Return the charges that this run needs: one a release step whose charge is not settled.

        Raises LostNoiseError if noise was paid for but its table is missing or changed: drawing again must be
        requested.
        """
        for step in self.list_lost_steps():
            raise self._make_lost_error(step)
        lines, states = [], self.ledger.states(self.dataset)
        for step in self.release_steps:
            key = self.keys[step.name]
            if states.get(key) != "spent" and not self._has_no_queries(step):
                lines.append(ChargeLine(step.name, key, step.rho(self.request), self._describe_charge(step)))
        return lines

    def _make_lost_error(self, step: ReleaseStep) -> LostNoiseError:
        """Return the refusal to draw a lost table again unasked; its cure names the folder that would have it."""
        lost = f"the noisy table of the step {step.name!r} was paid for but is missing or changed on disk"
        if step.published.keys() >= step.outputs.keys():
            folder = f"the run's released folder back into {self.store.released_root}"
            problem = f"{lost}, and no released folder here has it"
            cure = f"Put {folder}, restore the private folder from a backup, or " + self.plan.redraw
        else:
            problem, cure = lost, "Restore the private folder from a backup, or " + self.plan.redraw
        return LostNoiseError(f"{problem}; nothing was spent", cure)

    def _has_no_queries(self, step: Step) -> bool:
        """Return whether the step is whole and has no query to pay for (a single attribute has no pairs)."""
        refs = self._read_recorded(step)
        return refs is not None and self.store.read_table(refs.tables["receipts"]).num_rows == 0

    def has_paid(self, except_steps: Collection[str] = ()) -> bool:
        """Return whether any noise under these keys was paid for, ``except_steps`` the noise of these steps."""
        states, looks = self.ledger.states(self.dataset), [s for s in self.release_steps if s.name not in except_steps]
        return any(states.get(self.keys[s.name]) in ("reserved", "spent") for s in looks)

    def has_paid_all(self) -> bool:
        """Return whether all noise under these keys was paid for."""
        paid = ("reserved", "spent")
        return all(
            self.ledger.state(self.dataset, self.keys[s.name]) in paid or self._has_no_queries(s)
            for s in self.release_steps
        )

    def list_lost_steps(self) -> list[ReleaseStep]:
        """Return the release steps whose noise was paid for but whose tables are missing or changed."""
        states = self.ledger.states(self.dataset)
        return [
            step
            for step in self.release_steps
            if (states.get(key := self.keys[step.name]) == "spent" or self.records.noise_is_damaged(key))
            and not self.is_whole(step)
        ]

    def _describe_charge(self, step: Step) -> dict[str, str]:
        spec, privacy = self.request.spec, self.request.spec.improves or self.request.spec.privacy
        return {
            "neighbours": f"add or remove one {spec.unit.one}",
            "unit": spec.describe_unit(),
            "release_epsilon": repr(privacy.epsilon),
            "release_delta": repr(privacy.delta),
            "accountant": spec.effective_accountant,
            "mechanism": "discrete Gaussian",
            "title": step.title,
            "released_root": str(self.store.released_root),
            "private_root": str(self.store.private_root),
            **self.charged_as,
        }

    def run_reported(self, step: Step, inputs: Mapping[str, StepRefs]) -> StepRefs:
        """Run the step as :meth:`execute` does, and report its beginning and end."""
        self.report(step.name, 0, 1)
        refs = self.execute(step, inputs)
        self.report(step.name, 1, 1)
        return refs

    def execute(self, step: Step, inputs: Mapping[str, StepRefs]) -> StepRefs:
        """Run one step to completion, or find its complete results; see the module's header."""
        check_interrupts()
        recorded = self._read_recorded(step)
        try:
            if isinstance(step, ReleaseStep):
                return self._execute_release(step, inputs, recorded)
            return recorded or self._execute_plain(step, inputs)
        except PrivsynError:
            raise
        except Exception as error:
            if is_out_of_memory(error):
                problem = f"{OUT_OF_MEMORY}, at the step {step.name!r}"
                raise StepFailedError(problem, MORE_MEMORY) from error
            raise StepFailedError(
                f"the step {step.name!r} failed with {type(error).__name__} at {locate_error(error)}",
                "Run again: finished steps are kept and nothing is charged twice; "
                + refer_to_action("show_whole_error"),
            ) from error

    def _execute_plain(self, step: Step, inputs: Mapping[str, StepRefs]) -> StepRefs:
        if step.run is None:
            raise TypeError(f"{step.name} has no function to run")
        tables_in = self._open_inputs(step, inputs)  # keeps the folder of unfinished parts until they are written
        outputs = step.run(*step.open(self.request, tables_in), self._progress(step))
        return self._write(step, outputs)

    def _execute_release(
        self, step: ReleaseStep, inputs: Mapping[str, StepRefs], recorded: StepRefs | None
    ) -> StepRefs:
        key, refs = self.keys[step.name], recorded
        state = self.ledger.state(self.dataset, key)
        if refs is None:
            if state != "reserved":
                raise LedgerError(
                    f"the step {step.name!r} has no reservation in the ledger (state: {state})",
                    "Nothing was read; run the release from its start",
                )
            refs = self._take_look(step, inputs)
        if state == "reserved":
            self._settle(step, refs)
        self.records.discard_noise(key)
        return refs

    def _take_look(self, step: ReleaseStep, inputs: Mapping[str, StepRefs]) -> StepRefs:
        """Draw the noise, then count the rows, then add: the only place where private counts become releasable."""
        key, tables_in = self.keys[step.name], self._open_inputs(step, inputs)
        queries = self.plan_queries(step, inputs)
        budget = step.rho(self.request)
        check_stage(step.name, queries, budget)
        noise = self._draw_or_take_up_noise(step, key, queries)
        answers = []
        if queries:
            self.ledger.claim(self.dataset, key, self._mark_draw(key))
            request, tables_in = step.open(self.request, tables_in)
            exact = step.exact(request, tables_in, step.read_rows(request, tables_in), queries)
            for i, (counts, draw) in enumerate(zip(exact, noise, strict=True)):
                check_interrupts()
                answers.append(counts + draw)
                self.report(step.name, i + 1, len(queries))
            self.drawn.append(step.name)
        receipts = noisy.tabulate_receipts(queries)
        totals = validate_receipts(step.name, queries, budget) if self.validate and queries else []
        return self._write(step, {"noisy": noisy.tabulate_answers(answers), "receipts": receipts}, totals)

    def plan_queries(self, step: ReleaseStep, inputs: Mapping[str, StepRefs]) -> list[Query]:
        """Return the step's priced queries: a function of the public request and of released tables."""
        return self.plan.queries(step, self._open_inputs(step, inputs, released_only=True))

    def _draw_or_take_up_noise(self, step: ReleaseStep, key: str, queries: list[Query]) -> noisy.Answers:
        """Return the noise of this charge, drawn once for this plan and kept privately until the charge is settled."""
        stored, plan = self.records.kept_noise(key), compute_digest(queries)
        if stored is None:
            draws = self._draw_noise(queries)
            stored = noisy.tabulate_answers(draws).replace_schema_metadata({_PLAN: plan})
            self.records.keep_noise(key, stored)
        elif (stored.schema.metadata or {}).get(_PLAN) != plan:
            raise LedgerError(
                f"the noise kept for the step {step.name!r} was drawn for other queries, by another version",
                "Run it with the version that began it, or " + self.plan.redraw,
            )
        return noisy.read_answers(stored, queries)

    def _draw_noise(self, queries: list[Query]) -> noisy.Answers:
        """Draw independent noise for every cell of every query."""
        threads = choose_thread_count(self.request.threads)
        return noisy.draw_for_queries(queries, lambda sizes: draw_all(self.noise, sizes, threads, check_interrupts))

    def _settle(self, step: ReleaseStep, refs: StepRefs) -> None:
        receipts = noisy.read_receipts(self.store.read_table(refs.tables["receipts"]))
        spent, budget = sum_rho(receipts), step.rho(self.request)
        if spent > budget or any(q.pricing != self.request.pricing for q in receipts):
            raise LedgerError(
                f"the receipts of {step.name!r} cost more than their reservation, or are priced for another accountant",
                "Report this fault",
            )
        if receipts:
            self.ledger.settle(self.dataset, self.keys[step.name])
        else:
            self.ledger.abandon(self.dataset, self.keys[step.name], data_was_read=False)

    def give_back(self) -> None:
        """Cancel the reservations of a failed run whose noise was not drawn.

        A reservation with kept noise stays, and the re-run uses that noise.  All reservations stay if a copy of this
        private folder has drawn for the run: the copy continues with them.
        """
        if any(self._is_drawn_elsewhere(step) for step in self.release_steps):
            return
        for step in self.release_steps:
            key = self.keys[step.name]
            undrawn = not self.records.has_noise(key) and not self.is_whole(step)
            if undrawn and self.ledger.state(self.dataset, key) == "reserved":
                self.ledger.abandon(self.dataset, key, data_was_read=False)

    def _is_drawn_elsewhere(self, step: ReleaseStep) -> bool:
        """Return whether the ledger has another draw for the step's charge than the one kept or used here."""
        key = self.keys[step.name]
        entered = self.ledger.claimed(self.dataset, key)
        if entered is None or self.is_whole(step):
            return False
        return not self.records.has_noise(key) or self._mark_draw(key) != entered

    def _mark_draw(self, key: str) -> str:
        """Return the ledger's mark of the noise kept for this charge; it reveals nothing about the noise."""
        return self.store.mark("draw", key, self.records.noise_digest(key))

    def _open_inputs(self, step: Step, inputs: Mapping[str, StepRefs], *, released_only: bool = False) -> Inputs:
        """Return the step's input tables; a plan and post-processing get only released ones, and no access to rows."""
        looks = step.kind is not StepKind.POSTPROCESS and not released_only
        read = {}
        for name in step.inputs:
            producer, table = name.split(".")
            ref = inputs[producer].tables[table]
            if not looks and ref.zone is not Zone.RELEASED:
                continue
            if inputs[producer].key != self.keys[producer] or not self.store.verify(ref):
                raise RequestError(
                    f"the table {name!r} is missing, changed, or from another run", "Run again to recreate it"
                )
            contract = get_step(self.steps, producer).outputs[table]
            read[name] = self._make_reader(ref, wide=contract.wide)
        if step.kind is StepKind.POSTPROCESS and self.public_work is not None:
            work = self.public_work()
        else:
            work = RowWork(self.private.engine, self.store.make_scratch, self.request.threads)
        private = self.private if step.encodes else self.private.without_source()
        return Inputs(read, private if looks else None, work)

    def _make_reader(self, ref: ArtifactRef, *, wide: bool) -> Callable[[], object]:
        """Return a function that reads a table; privacy tests observe here which steps read private tables."""
        return partial(self.store.stored if wide else self.store.read_table, ref)

    def _write(self, step: Step, outputs: Mapping[str, Output], verdicts: Sequence[ContractVerdict] = ()) -> StepRefs:
        return write_outputs(
            step, outputs, self.keys[step.name], self.store, self.records, validate=self.validate, verdicts=verdicts
        )

    def _read_recorded(self, step: Step) -> StepRefs | None:
        """Return the step's tables if they are whole; tables kept only for finished steps may be gone."""
        places = {f"{step.name}.{name}": name for name in step.transient}
        readers = [s for s in self.steps if not places.keys().isdisjoint(s.inputs)] if places else []
        needed = {places[name] for s in readers for name in s.inputs if name in places and not self.is_whole(s)}
        dispensable = {*places.values()} - needed
        return read_recorded_outputs(step, self.keys[step.name], self.store, self.records, dispensable)

    def _progress(self, step: Step) -> Callable[[int, int], None]:
        def progress(done: int, total: int) -> None:
            check_interrupts()
            if step.kind is not StepKind.TRANSFORM:  # the number of parts of private rows must not be shown or logged
                self.report(step.name, done, total)

        return progress
