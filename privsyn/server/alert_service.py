"""The service that sends alerts: it looks at the states of runs every two seconds, and marks runs with sent alerts.

It runs in the server's process, so it is present whenever a state can change.  A mark is a label of the run, set after
the alert is sent: an undelivered alert is sent again, and a kill between the two steps repeats one alert.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

import httpx
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings
from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from privsyn.base.settings import Settings
from privsyn.flows.metrics import LAST_RUN, LAST_RUN_WORDS
from privsyn.flows.states import (
    BUDGET_LEFT_EPSILON,
    BUDGET_LEFT_RELEASES,
    BUDGET_LEFT_RHO,
    CACHED,
    DATASET,
    FAILURES,
    FLOWS,
    RELEASE_FLOWS,
)
from privsyn.server.alerts import (
    LATE_AFTER,
    TOLD,
    TOLD_LATE,
    Addressee,
    Alert,
    alert_made_up,
    alert_missed,
    alert_without_worker,
    find_dataset,
    judge_end,
    judge_start,
    load_addressee,
    read_addressee,
)
from privsyn.server.environment import POOL, Address
from privsyn.server.login import SERVER
from privsyn.server.scheduled_releases import (
    ReleaseQueue,
    find_due_periods,
    read_deployed,
    read_flow_name,
    read_names_in_ledger,
    read_pages,
    read_released_periods,
)
from privsyn.server.work_pool import end_lost_runs, end_runs_of_absent_workers, name_worker, was_cancelled
from privsyn.storage.disk import replace_file

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun


_OF_THIS_PROCESS = ("unsent", "checked_at", "known", "to_release")


@dataclass
class RemainingBudget:
    """A data set's remaining budget, from the ledger: rho, epsilon at the cap's delta, releases like the last."""

    rho: float
    epsilon: float
    releases: int


@dataclass(eq=False)  # Prometheus' registry keeps it by identity
class AlertMemory:
    """The state of the alerts, by data set.

    ``told_until``: alerts of all runs that ended before are sent; ``worker``: last known state of the pool's workers;
    ``failures``: number of failed runs, by data set and by FLOW/STATE; ``last_runs``: by data set and flow;
    ``refusals``: the ledger's message of an alerted refusal by the cap, by data set, until its next release;
    ``missed``: missed periods that are not made up yet, by data set.
    The rest is not saved; ``known``: data sets of deployments and of the ledger; ``to_release``: data sets that a
    deployment releases.
    """

    told_until: datetime
    worker: Literal["unknown", "there", "gone"] = "unknown"
    failures: dict[str, dict[str, int]] = field(default_factory=dict)
    last_failure: dict[str, float] = field(default_factory=dict)
    last_success: dict[str, float] = field(default_factory=dict)
    last_runs: dict[str, dict[str, float]] = field(default_factory=dict)
    budgets: dict[str, RemainingBudget] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    missed: dict[str, list[str]] = field(default_factory=dict)
    unsent: int = 0
    checked_at: float = 0.0
    known: set[str] = field(default_factory=set)
    to_release: set[str] = field(default_factory=set)

    @classmethod
    def load(cls, file: Path, now: datetime) -> AlertMemory:
        """Return the memory in the file; if it cannot be read, a new memory, which begins ``now``."""
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            budgets = {name: RemainingBudget(**budget) for name, budget in content.pop("budgets").items()}
            return cls(told_until=datetime.fromisoformat(content.pop("told_until")), budgets=budgets, **content)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return cls(told_until=now)

    def save(self, file: Path) -> None:
        """Replace the file atomically."""
        with replace_file(file, for_good=False) as temporary:
            temporary.write_text(self.snapshot(), encoding="utf-8")

    def snapshot(self) -> str:
        """Return the saved state, as JSON."""
        state = {name: value for name, value in asdict(self).items() if name not in _OF_THIS_PROCESS}
        return json.dumps(state | {"told_until": self.told_until.isoformat()})

    def note_failure(self, dataset: str, flow: str, state: str, moment: float) -> None:
        """Count a run that failed."""
        counts, key = self.failures.setdefault(dataset, {}), f"{flow}/{state}"
        counts[key] = counts.get(key, 0) + 1
        self.last_failure[dataset] = max(moment, self.last_failure.get(dataset, 0.0))

    def note_run(self, dataset: str, flow: str, moment: float) -> None:
        """Keep the moment a run completed, unless a later one is known."""
        runs = self.last_runs.setdefault(dataset, {})
        runs[flow] = max(moment, runs.get(flow, 0.0))

    def note_success(self, dataset: str, moment: float, remaining: RemainingBudget) -> None:
        """Keep the moment of a release and the remaining budget, unless a later one is known."""
        if moment >= self.last_success.get(dataset, 0.0):
            self.last_success[dataset], self.budgets[dataset] = moment, remaining
            if moment > self.last_failure.get(dataset, 0.0):
                self.refusals.pop(dataset, None)

    def count_failures(self) -> dict[tuple[str, str, str], int]:
        """Return the number of failed runs by data set, flow and state.

        It is 0, not absent, for every known data set and for runs without one: Prometheus sees no increase in a series
        that begins at 1.
        """
        known = {"", *self.known, *self.failures, *self.last_runs, *self.last_success}
        counts = dict.fromkeys(product(sorted(known), FLOWS, FAILURES), 0)
        for dataset, of_dataset in list(self.failures.items()):
            for key, count in list(of_dataset.items()):
                flow, _, state = key.rpartition("/")
                counts[dataset, flow, state] = count
        return counts

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics for Prometheus' client."""
        failures = CounterMetricFamily(
            "privsyn_run_failures", "Runs that failed, crashed or were refused.", labels=("dataset", "flow", "state")
        )
        for labels, count in self.count_failures().items():
            failures.add_metric(labels, count)
        yield failures
        ended = GaugeMetricFamily(LAST_RUN, LAST_RUN_WORDS, labels=("dataset", "flow"))
        for dataset, runs in list(self.last_runs.items()):
            for flow, moment in list(runs.items()):
                ended.add_metric((dataset, flow), moment)
        yield ended
        budgets = dict(self.budgets)
        refused = {name: float(name in self.refusals) for name in sorted({*self.known, *self.refusals} - {""})}
        releases = dict.fromkeys(sorted(self.to_release), 0.0) | self.last_success
        for name, description, figures in (
            ("privsyn_last_failure_timestamp_seconds", "End of the last run that failed.", dict(self.last_failure)),
            ("privsyn_last_success_timestamp_seconds", "End of the last release; 0: none yet.", releases),
            ("privsyn_budget_left_rho", "Left of the cap at the last release.", {d: b.rho for d, b in budgets.items()}),
            (
                "privsyn_budget_left_epsilon",
                "The same, at the cap's delta.",
                {d: b.epsilon for d, b in budgets.items()},
            ),
            ("privsyn_refused", "1: the budget refused the last release; 0: it did not.", refused),
            ("privsyn_budget_left_releases", "For how many more like it.", {d: b.releases for d, b in budgets.items()}),
        ):
            gauge = GaugeMetricFamily(name, description, labels=("dataset",))
            for dataset, figure in figures.items():
                gauge.add_metric((dataset,), figure)
            yield gauge
        yield GaugeMetricFamily("privsyn_alerts_untold", "Alerts that could not be delivered yet.", value=self.unsent)
        yield GaugeMetricFamily(
            "privsyn_alerts_last_look_timestamp_seconds",
            "When the server last looked at its runs.",
            value=self.checked_at,
        )


CHECK_SECONDS = 2.0
"""Seconds between two checks of ended runs."""

SLOW_CHECK_SECONDS = 20.0
"""Seconds between two checks of late runs, workers, and all runs that ended since ``told_until``."""

RECENT = timedelta(minutes=10)
"""How far a quick check goes back: a state that a program set after retries is older than its place in the history."""

OVERLAP = timedelta(days=1)
"""How far a slow check goes back before ``told_until``."""

STARTING = timedelta(seconds=90)
"""Time after the server's start during which absent workers are ignored."""

LEDGER_SECONDS = 60.0
"""Seconds between two checks of the ledger's data sets."""

LONGEST_PAUSE = 300.0
"""Longest pause between two attempts to deliver, in seconds."""

MEMORY = "alerts.json"
"""Name of the file in PREFECT_HOME."""

_logger = logging.getLogger(__name__)

Send = Callable[[Addressee, Alert], None]


@dataclass
class AlertService:
    """Looks at the runs of a server, and sends alerts with ``send``.

    ``page``: the address of the server's page; ``file``: the file of the memory; ``started``: the server's start;
    ``will_retry``: whether a crashed run is retried automatically, so that no alert is needed yet.
    """

    client: SyncPrefectClient
    send: Send
    page: str
    file: Path
    started: datetime
    will_retry: Callable[[FlowRun], bool] = lambda _run: False
    memory: AlertMemory = field(init=False)
    _pauses: dict[str, tuple[float, float]] = field(default_factory=dict)
    _unmarked: set[str] = field(default_factory=set)
    _released: set[tuple[str, str]] = field(default_factory=set)
    _next_slow: float = 0.0

    def __post_init__(self) -> None:
        """Load the memory of sent alerts, or save a new one, so that runs that end from now on cause alerts."""
        self.memory = AlertMemory.load(self.file, self.started)
        self.memory.save(self.file)

    def check_runs(self, now: datetime) -> None:
        """Check the runs, and send the alerts that are due."""
        slow = time.monotonic() >= self._next_slow
        before = self.memory.snapshot()
        to = read_addressee(self.client)
        since = self.memory.told_until - OVERLAP
        after = {"after_": since if slow else max(since, now - RECENT)}
        ended = {"state": {"type": {"any_": ["FAILED", "CRASHED", "COMPLETED"]}}, "end_time": after}
        delivered = [self._judge_end(run, to) for run in self._read(ended)]
        if slow:
            deployed = [(name, read_flow_name(self.client, one.flow_id)) for name, one in read_deployed(self.client)]
            self.memory.known.update(name for name, _ in deployed)
            self.memory.to_release = {name for name, flow in deployed if flow in RELEASE_FLOWS}
            self._check_absent(to, now)
            self._check_periods(to, now)
            if all(delivered):
                self.memory.told_until = now
            self._next_slow = time.monotonic() + SLOW_CHECK_SECONDS
        self.memory.unsent, self.memory.checked_at = delivered.count(False), now.timestamp()
        if self.memory.snapshot() != before:
            self.memory.save(self.file)

    def _check_absent(self, to: Addressee, now: datetime) -> None:
        """Look for late runs, runs that lost their worker, and a pool without a worker."""
        for run in self._read(
            {"state": {"name": {"any_": ["Late"]}}, "expected_start_time": {"before_": now - LATE_AFTER}}
        ):
            if alert := judge_start(run, self.page, now):
                self._tell(to, run, alert, TOLD_LATE)
        with suppress(ObjectNotFound):  # nothing was deployed yet
            pool = self.client.read_work_pool(POOL)
            if now >= self.started + STARTING:
                status = str(pool.status.value) if pool.status else ""
                if status == "READY":
                    self.memory.worker = "there"
                elif status == "NOT_READY" and self.memory.worker == "there":
                    gone = self._deliver(to, alert_without_worker(str(pool.id)))
                    self.memory.worker = "gone" if gone else "there"
                for name in end_runs_of_absent_workers(self.client, now):
                    _logger.warning("The run %s had lost its worker and is ended.", name)

    def _check_periods(self, to: Addressee, now: datetime) -> None:
        """Send alerts of missed periods, unless a run's alert told of them, and of missed periods that were made up."""
        due = find_due_periods(self.client, self.memory.told_until - OVERLAP, now - LATE_AFTER)
        asked = {(dataset, period) for dataset, periods in due.items() for period in periods} - self._released
        if not asked and not self.memory.missed:
            return
        released = read_released_periods(Settings())
        if released is None:
            return
        self._released = released
        for dataset, periods in due.items():
            known = self.memory.missed.get(dataset, [])
            new = [p for p in periods if p not in known and (dataset, p) not in released]
            untold = [p for p in new if not periods[p] and dataset not in self.memory.refusals]
            if new and (not untold or self._deliver(to, alert_missed(dataset, untold))):
                self.memory.missed[dataset] = [*known, *new]
        for dataset, missed in list(self.memory.missed.items()):
            made = [p for p in missed if (dataset, p) in released]
            if made and self._deliver(to, alert_made_up(dataset, made)):
                self.memory.missed[dataset] = [p for p in missed if p not in made]
                if not self.memory.missed[dataset]:
                    del self.memory.missed[dataset]

    def _judge_end(self, run: FlowRun, to: Addressee) -> bool:
        """Send the alert of an ended run, and note the run in the metrics; return whether nothing is left to send."""
        state = run.state
        if state is None:
            return True
        moment = (run.end_time or state.timestamp).timestamp()
        if state.is_completed():
            self.memory.note_run(find_dataset(run), read_flow_name(self.client, run.flow_id), moment)
        if state.is_completed() and state.name != CACHED and run.labels.get(BUDGET_LEFT_RHO) is not None:
            with suppress(ValueError, TypeError):  # labels that are not ours
                remaining = RemainingBudget(
                    float(run.labels[BUDGET_LEFT_RHO]),
                    float(run.labels.get(BUDGET_LEFT_EPSILON, 0)),
                    int(run.labels.get(BUDGET_LEFT_RELEASES, 0)),
                )
                self.memory.note_success(str(run.labels[DATASET]), moment, remaining)
        alert = judge_end(run, self.page)
        if alert is None or run.labels.get(TOLD) == str(state.id) or was_cancelled(self.client, run):
            return True
        if self.will_retry(run):
            return True
        dataset = find_dataset(run)
        again = alert.kind == "refused" and self.memory.refusals.get(dataset) == state.message
        if not self._tell(to, run, alert, TOLD, silently=again):
            return False
        if alert.kind == "refused":
            self.memory.refusals[dataset] = state.message or ""
        if not state.is_completed():
            flow = read_flow_name(self.client, run.flow_id)
            self.memory.note_failure(dataset, flow, str(state.name), moment)
        return True

    def _tell(self, to: Addressee, run: FlowRun, alert: Alert, label: str, *, silently: bool = False) -> bool:
        """Deliver a run's alert (``silently``: it is told already) and mark the run; return whether it is delivered."""
        state = str(run.state.id) if run.state else ""
        if run.labels.get(label) == state:
            return True
        if not silently and state not in self._unmarked and not self._deliver(to, alert):
            return False
        self._unmarked.add(state)  # a failed mark is repeated at the next check, without sending the alert again
        self.client.update_flow_run_labels(run.id, {label: state})
        self._unmarked.discard(state)
        return True

    def _deliver(self, to: Addressee, alert: Alert) -> bool:
        """Send an alert, unless its kind is off or there is no addressee; return False if it cannot be sent yet."""
        key = f"{alert.kind} {alert.resource}"
        due, pause = self._pauses.get(key, (0.0, CHECK_SECONDS))
        if time.monotonic() < due:
            return False
        if alert.kind not in to.off:
            try:
                if to.block:
                    self.send(to, alert)
            except Exception as error:  # from any service; its text may contain the address, a secret
                self._pauses[key] = (time.monotonic() + pause, min(2 * pause, LONGEST_PAUSE))
                _logger.warning("An alert (%s) could not be delivered: %s.", alert.kind, type(error).__name__)
                return False
            self._show(alert)
        self._pauses.pop(key, None)
        return True

    def _show(self, alert: Alert) -> None:
        """Add the alert to the server's events.  A failure does not affect the notification."""
        resource = {"prefect.resource.id": alert.resource, "prefect.resource.name": alert.subject}
        event = {
            "id": str(uuid4()),
            "occurred": datetime.now(UTC).isoformat(),
            "event": f"privsyn.alert.{alert.kind}",
            "resource": resource,
            "payload": {"subject": alert.subject, "body": alert.body},
        }
        with suppress(httpx.HTTPError):
            self.client.request("POST", "/events", json=[event])

    def _read(self, filter_fields: Mapping[str, Any]) -> Iterator[FlowRun]:
        condition = FlowRunFilter.model_validate(filter_fields)
        return read_pages(self.client.read_flow_runs, flow_run_filter=condition, sort=FlowRunSort.END_TIME_DESC)


def send_by_block(to: Addressee, alert: Alert) -> None:
    """Send an alert by the server's notification block.  Raises the block's errors."""
    block = load_addressee(to)
    with block.raise_on_failure():
        block.notify(alert.body, alert.subject)  # type: ignore[unused-coroutine]  # runs at once outside an event loop


def start_alerts(variables: Mapping[str, str]) -> None:
    """Start the service in a thread of the server's process; ``variables``: the server's environment."""
    threading.Thread(target=_run, args=(dict(variables),), name="alerts", daemon=True).start()


def _run(variables: dict[str, str]) -> None:
    """Check the runs as long as the server runs; a failed check does not stop the next."""
    address = Address.of(variables)
    while not address.here.answers():
        time.sleep(0.1)
    api, login = address.here.api, variables.get(SERVER) or ""
    settings = {PREFECT_API_URL: api, PREFECT_API_AUTH_STRING: login}
    with temporary_settings(settings), SyncPrefectClient(api, auth_string=login) as client:
        file = Path(variables["PREFECT_HOME"]) / MEMORY
        queue = ReleaseQueue(client)
        service = AlertService(client, send_by_block, address.page, file, datetime.now(UTC), queue.will_retry)
        REGISTRY.register(service.memory)
        threading.Thread(target=_watch_ledger, args=(service.memory,), name="known data sets", daemon=True).start()
        with suppress(httpx.HTTPError):  # the worker does this too, but starts later
            end_lost_runs(client, name_worker(), ["RUNNING"])
        while True:
            for check in (queue.tend, service.check_runs):
                try:
                    check(datetime.now(UTC))
                except Exception as error:  # a server that stops, a full disk
                    _logger.warning("The server's runs could not be looked at (%s).", type(error).__name__)
            time.sleep(CHECK_SECONDS)


def _watch_ledger(memory: AlertMemory) -> None:
    """Note the ledger's data sets while the server runs, in a separate thread because a database may be slow."""
    while True:
        try:
            memory.known.update(read_names_in_ledger(Settings()))
        except Exception as error:  # alerts go on without the ledger
            _logger.warning("The ledger's data sets could not be read (%s).", type(error).__name__)
        time.sleep(LEDGER_SECONDS)
