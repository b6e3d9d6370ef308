"""The shell: the one way in which every step runs, so that the privacy-critical wiring is written once.

Belongs here: lineage keys, the preflight against the ledger, and the three ways to run a step.  Does not
belong here: what a step does (flows/steps.py, tasks/), Prefect (flows/release.py), files (flows/storage/store.py).

A step is run like this: integrity of the inputs -> (release only) stage check, noise, look, sum ->
contract of the outputs -> atomic write -> record -> (release only) settle the ledger.

**One draw for one charge, through any crash.**  A release step draws its noise *before* it looks at the
data and keeps it in the private zone until the noisy table is written and the charge settled.  Killed
before that file is whole, the data has not been touched; killed after, the re-run adds the same noise to
the same counts.  So a charge never covers two draws, and a draw is never charged twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from data_contracts import tables
from data_contracts.artifacts import ArtifactRef, Kind, Zone
from data_contracts.receipts import SMOOTHING, Query, total_rho
from flows.checks import check_stage, check_table
from flows.errors import LedgerError, PrivsynError, RequestError
from flows.ledger.ledger import Ledger, Line
from flows.step import Inputs, Output, ReleaseStep, Request, Step, Wide
from flows.steps import STEPS
from flows.storage.records import Records
from flows.storage.store import Store
from tasks import noisy
from tasks.kernels.counting import thread_count
from tasks.privacy.noise import NoiseSource, draw_all

ReportProgress = Callable[[str, int, int], None]
"""Called with (step name, done, total)."""

_PLAN = b"plan"

REDRAW = "run with --fresh to draw new noise at new cost"
"""How a release asks for new noise."""


class StepRefs(BaseModel):
    """What a step left: references to its tables.  This is what Prefect passes, stores and shows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: str
    key: str
    tables: dict[str, ArtifactRef]


class StepFailedError(PrivsynError):
    """An unexpected failure inside a step: its type and place, never its text, which may hold private values."""


def lineage_keys(
    request: Request,
    fingerprint: str,
    generation: int,
    noise: NoiseSource,
    steps: Sequence[Step] = STEPS,
    period: str | None = None,
) -> dict[str, str]:
    """The cache key of every step of ``steps``, known before anything runs.

    A key is SHA-256 over the step's name, version and own settings and its inputs' keys; the first step
    adds the data's fingerprint (an HMAC), the release steps the generation of their noise and its source: what
    was made with test noise is never taken for a release.  They add the period of a scheduled release too, so that
    each period draws and pays whether or not the data changed: when a release appears tells nothing of the data.
    """
    keys: dict[str, str] = {}
    for step in steps:
        parts = [step.name, str(step.version), step.settings_json(request)]
        parts += sorted({keys[name.split(".")[0]] for name in step.inputs}) or [fingerprint]
        if step.kind is Kind.RELEASE:
            parts += [f"generation {generation}", type(noise).__name__]
            parts += [f"pricing {request.pricing} {SMOOTHING}"] if request.pricing != "zcdp" else []
            parts += [f"period {period}"] if period is not None else []
        keys[step.name] = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return keys


@dataclass
class Shell:
    """One run: its request, keys, places, money and steps (a release's, unless told otherwise).

    ``redraw``: how its operator asks for new noise, for the message when a paid table is lost.
    """

    request: Request
    keys: Mapping[str, str]
    run: str
    store: Store
    records: Records
    ledger: Ledger
    noise: NoiseSource
    report: ReportProgress = lambda step, done, total: None
    drawn: list[str] = field(default_factory=list)
    steps: Sequence[Step] = STEPS
    redraw: str = REDRAW

    @property
    def release_steps(self) -> tuple[ReleaseStep, ...]:
        """The run's steps that turn private into released and cost budget."""
        return tuple(step for step in self.steps if isinstance(step, ReleaseStep))

    @property
    def dataset(self) -> str:
        """The ledger's name for the data set."""
        return self.request.spec.dataset

    def is_whole(self, step: Step) -> bool:
        """Whether the step's outputs are on disk, unchanged since they passed their contracts."""
        return self._recorded(step) is not None

    def missing_budget(self) -> list[Line]:
        """The charges that this run needs: one a release step whose noise has not been drawn yet.

        Raises RequestError where noise was paid for but its table is gone or changed: drawing again must
        be asked for.
        """
        lost = self.lost_step()
        if lost is not None:
            raise RequestError(
                f"the noisy table of the step {lost!r} was paid for but is missing or changed on disk",
                f"Restore the private folder from a backup, or {self.redraw}",
            )
        lines = []
        for step in self.release_steps:
            key = self.keys[step.name]
            if self.ledger.state(self.dataset, key) != "spent" and not self._asked_nothing(step):
                lines.append(Line(step.name, key, self.request.stage_rho(step.name), self._ledger_detail(step)))
        return lines

    def _asked_nothing(self, step: Step) -> bool:
        """Whether the step is whole and had no query to pay for (one attribute has no pairs)."""
        refs = self._recorded(step)
        return refs is not None and self.store.read_table(refs.tables["receipts"]).num_rows == 0

    def has_drawn(self) -> bool:
        """Whether any noise under these keys was paid for."""
        held = ("reserved", "spent")
        return any(self.ledger.state(self.dataset, self.keys[s.name]) in held for s in self.release_steps)

    def lost_step(self) -> str | None:
        """The first release step whose noise was paid for but whose table is gone or changed."""
        for step in self.release_steps:
            if self.is_whole(step):
                continue
            paid = self.ledger.state(self.dataset, self.keys[step.name]) == "spent"
            if paid or self.records.noise_is_damaged(self.keys[step.name]):
                return step.name
        return None

    def _ledger_detail(self, step: Step) -> dict[str, str]:
        privacy = self.request.spec.privacy
        return {
            "neighbours": "add or remove one person",
            "unit": self.request.spec.unit.describe(),
            "release_epsilon": repr(privacy.epsilon),
            "release_delta": repr(privacy.delta),
            "accountant": self.request.spec.accountant,
            "mechanism": "discrete Gaussian",
            "title": step.title,
        }

    def execute(self, step: Step, inputs: Mapping[str, StepRefs]) -> StepRefs:
        """Run one step whole, or find that it already ran whole; see the module's header."""
        found = self._recorded(step)
        try:
            if isinstance(step, ReleaseStep):
                return self._execute_release(step, inputs, found)
            return found or self._execute_plain(step, inputs)
        except PrivsynError:
            raise
        except Exception as error:
            place = _place(error)
            raise StepFailedError(
                f"the step {step.name!r} failed with {type(error).__name__} at {place}",
                "Run again: finished steps are kept and nothing is charged twice; --debug shows the whole error",
            ) from error

    def _execute_plain(self, step: Step, inputs: Mapping[str, StepRefs]) -> StepRefs:
        if step.run is None:
            raise TypeError(f"{step.name} has nothing to run")
        outputs = step.run(self.request, self._inputs(step, inputs), self._progress(step))
        return self._write(step, outputs)

    def _execute_release(self, step: ReleaseStep, inputs: Mapping[str, StepRefs], found: StepRefs | None) -> StepRefs:
        key = self.keys[step.name]
        state = self.ledger.state(self.dataset, key)
        if found is None:
            if state != "reserved":
                raise LedgerError(
                    f"the step {step.name!r} has no reservation in the ledger (state: {state})",
                    "Nothing was read; run the release from its start",
                )
            found = self._draw(step, inputs)
        if state == "reserved":
            self._settle(step, found)
        self.records.discard_noise(key)
        return found

    def _draw(self, step: ReleaseStep, inputs: Mapping[str, StepRefs]) -> StepRefs:
        """Noise first, then the look, then the sum: the only place where private counts become releasable."""
        key, tables_in = self.keys[step.name], self._inputs(step, inputs)
        queries = self.planned(step, inputs)
        check_stage(step.name, queries, self.request.stage_rho(step.name))
        noise = self._noise(step, key, queries)
        answers = []
        if queries:
            rows = step.read_rows(self.request, tables_in)
            total = len(queries)
            for i, (counts, draw) in enumerate(
                zip(step.exact(self.request, tables_in, rows, queries), noise, strict=True)
            ):
                answers.append(counts + draw)
                self.report(step.name, i + 1, total)
            self.drawn.append(step.name)
        receipts = noisy.receipts_to_table(queries)
        return self._write(step, {"noisy": noisy.answers_to_table(answers), "receipts": receipts})

    def planned(self, step: ReleaseStep, inputs: Mapping[str, StepRefs]) -> list[Query]:
        """What the step asks of the rows, priced: a function of the public request and of released tables."""
        asked = step.plan(self.request, self._inputs(step, inputs, released_only=True))
        return [query.under(self.request.pricing) for query in asked]

    def _noise(self, step: ReleaseStep, key: str, queries: list[Query]) -> noisy.Answers:
        """The noise of this charge: drawn once for this plan, kept privately until the charge is settled."""
        kept, plan = self.records.kept_noise(key), _plan(queries)
        if kept is None:
            draws = self._draws(queries)
            kept = noisy.answers_to_table(draws).replace_schema_metadata({_PLAN: plan})
            self.records.keep_noise(key, kept)
        elif (kept.schema.metadata or {}).get(_PLAN) != plan:
            raise LedgerError(
                f"the noise kept for the step {step.name!r} was drawn for other queries, by another version",
                f"Run it with the version that began it, or {self.redraw}",
            )
        return noisy.answers_from_table(kept, queries)

    def _draws(self, queries: list[Query]) -> noisy.Answers:
        """Independent noise for every cell of every query."""
        threads = thread_count(self.request.threads)
        return noisy.draws_for(queries, lambda asked: draw_all(self.noise, asked, threads))

    def _settle(self, step: ReleaseStep, refs: StepRefs) -> None:
        receipts = noisy.receipts_from_table(self.store.read_table(refs.tables["receipts"]))
        spent, budget = total_rho(receipts), self.request.stage_rho(step.name)
        if spent > budget or any(q.pricing != self.request.pricing for q in receipts):
            raise LedgerError(
                f"the receipts of {step.name!r} cost more than their reservation, or are priced for another accountant",
                "Report this fault",
            )
        if receipts:
            self.ledger.settle(self.dataset, self.keys[step.name])
        else:
            self.ledger.abandon(self.dataset, self.keys[step.name], touched=False)

    def give_back(self) -> None:
        """After a failure: cancel the reservations whose noise was not even drawn; nothing rests on them.

        A reservation with kept noise stays, and the re-run draws on it.
        """
        for step in self.release_steps:
            key = self.keys[step.name]
            undrawn = not self.records.has_noise(key) and not self.is_whole(step)
            if undrawn and self.ledger.state(self.dataset, key) == "reserved":
                self.ledger.abandon(self.dataset, key, touched=False)

    def _inputs(self, step: Step, inputs: Mapping[str, StepRefs], *, released_only: bool = False) -> Inputs:
        """The step's input tables; a plan gets the released ones only, so that it cannot look at rows."""
        read = {}
        for name in step.inputs:
            producer, table = name.split(".")
            ref = inputs[producer].tables[table]
            if released_only and ref.zone is not Zone.RELEASED:
                continue
            if inputs[producer].key != self.keys[producer] or not self.store.verify(ref):
                raise RequestError(
                    f"the table {name!r} is missing, changed, or from another run", "Run again to make it anew"
                )
            contract = self._step(producer).outputs[table]
            read[name] = self._reader(ref, wide=contract.wide)
        return Inputs(read)

    def _step(self, name: str) -> Step:
        return next(step for step in self.steps if step.name == name)

    def _reader(self, ref: ArtifactRef, *, wide: bool) -> Callable[[], object]:
        return (lambda: self.store.stored(ref)) if wide else (lambda: self.store.read_table(ref))

    def _write(self, step: Step, outputs: Mapping[str, Output]) -> StepRefs:
        """Check every output against its contract, write it atomically, and record the whole step last."""
        refs = {}
        for name, contract in step.outputs.items():
            output = outputs[name]
            if callable(output):
                output = output()
            parts: tuple[int, ...] = ()
            if isinstance(output, Wide):
                rows, schema, parts = checked_stream(contract, output), output.schema, output.parts
            else:
                check_table(contract, output)
                rows, schema = output, output.schema
            where = (name, step.name, self.keys[step.name], contract.zone)
            refs[name] = self.store.write_table(rows, schema, *where, parts=parts)
        done = StepRefs(step=step.name, key=self.keys[step.name], tables=refs)
        self.records.save(f"step-{done.key}", done.model_dump(mode="json"))
        return done

    def _recorded(self, step: Step) -> StepRefs | None:
        name = f"step-{self.keys[step.name]}"
        refs = self.records.load_as(name, StepRefs)
        if refs is None:
            return None
        if refs.tables.keys() != step.outputs.keys():
            raise self.records.damaged(name)
        return refs if all(self.store.verify(ref) for ref in refs.tables.values()) else None

    def _progress(self, step: Step) -> Callable[[int, int], None]:
        return lambda done, total: self.report(step.name, done, total)


def checked_stream(contract: tables.TableContract, wide: Wide) -> Iterator[pa.RecordBatch]:
    """Pass batches through, profile each, and check the contract before the stream ends.

    A writer that commits only after the last batch therefore never commits a table that fails.
    """
    profiles = []
    for batch in wide.batches:
        profiles.append(wide.profile([batch]))
        yield batch
    if not profiles:
        empty = pa.RecordBatch.from_pylist([], schema=wide.schema)
        profiles.append(wide.profile([empty]))
    check_table(contract, pa.concat_tables(profiles))


def _plan(queries: Sequence[Query]) -> bytes:
    """A digest of all that noise is drawn for."""
    told = [[q.attributes, q.cells, q.sensitivity, q.sigma.hex(), q.pricing] for q in queries]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest().encode()


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}" if trace else "an unknown place"
