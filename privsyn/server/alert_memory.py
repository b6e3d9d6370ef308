"""What the server remembers of the runs that it has judged: how far it is, and the figures of its gauges."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from privsyn.flows.metrics import LAST_RUN, LAST_RUN_WORDS
from privsyn.storage.disk import replace_file


@dataclass
class Budget:
    """What is left of a data set's budget, from the ledger: rho, epsilon at the cap's delta, releases like the last."""

    rho: float
    epsilon: float
    releases: int


@dataclass(eq=False)  # Prometheus' registry keeps it by identity
class AlertMemory:
    """All of it, by data set.

    ``told_until``: everything that ended before is told; ``worker``: what was last seen of the work pool's workers;
    ``failures``: number of failed runs, by data set and by FLOW/STATE; ``last_runs``: by data set and flow.  ``untold``
    and ``looked`` are of this process.
    """

    told_until: datetime
    worker: Literal["unknown", "there", "gone"] = "unknown"
    failures: dict[str, dict[str, int]] = field(default_factory=dict)
    last_failure: dict[str, float] = field(default_factory=dict)
    last_success: dict[str, float] = field(default_factory=dict)
    last_runs: dict[str, dict[str, float]] = field(default_factory=dict)
    budgets: dict[str, Budget] = field(default_factory=dict)
    untold: int = 0
    looked: float = 0.0

    @classmethod
    def load(cls, file: Path, now: datetime) -> AlertMemory:
        """Return what the file says; without one that can be read, a new memory, which begins ``now``."""
        try:
            said = json.loads(file.read_text(encoding="utf-8"))
            budgets = {name: Budget(**left) for name, left in said.pop("budgets").items()}
            return cls(told_until=datetime.fromisoformat(said.pop("told_until")), budgets=budgets, **said)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return cls(told_until=now)

    def save(self, file: Path) -> None:
        """Write the file anew, whole."""
        with replace_file(file, for_good=False) as temporary:
            temporary.write_text(self.snapshot(), encoding="utf-8")

    def snapshot(self) -> str:
        """Return what is kept, as JSON."""
        kept = {name: value for name, value in asdict(self).items() if name not in ("untold", "looked")}
        return json.dumps(kept | {"told_until": self.told_until.isoformat()})

    def note_failure(self, dataset: str, flow: str, state: str, moment: float) -> None:
        """Count a run that failed."""
        counts, key = self.failures.setdefault(dataset, {}), f"{flow}/{state}"
        counts[key] = counts.get(key, 0) + 1
        self.last_failure[dataset] = max(moment, self.last_failure.get(dataset, 0.0))

    def note_run(self, dataset: str, flow: str, moment: float) -> None:
        """Keep the moment at which a run ended well, unless a later one is known."""
        runs = self.last_runs.setdefault(dataset, {})
        runs[flow] = max(moment, runs.get(flow, 0.0))

    def note_success(self, dataset: str, moment: float, left: Budget) -> None:
        """Keep the moment of a release and what it left of the budget, unless a later one is known."""
        if moment >= self.last_success.get(dataset, 0.0):
            self.last_success[dataset], self.budgets[dataset] = moment, left

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges, as Prometheus' client asks for them."""
        failures = CounterMetricFamily(
            "privsyn_run_failures", "Runs that failed, crashed or were refused.", labels=("dataset", "flow", "state")
        )
        for dataset, counts in list(self.failures.items()):
            for key, count in list(counts.items()):
                flow, _, state = key.rpartition("/")
                failures.add_metric((dataset, flow, state), count)
        yield failures
        ended = GaugeMetricFamily(LAST_RUN, LAST_RUN_WORDS, labels=("dataset", "flow"))
        for dataset, runs in list(self.last_runs.items()):
            for flow, moment in list(runs.items()):
                ended.add_metric((dataset, flow), moment)
        yield ended
        left = dict(self.budgets)
        for name, what, figures in (
            ("privsyn_last_failure_timestamp_seconds", "End of the last run that failed.", dict(self.last_failure)),
            ("privsyn_last_success_timestamp_seconds", "End of the last release.", dict(self.last_success)),
            ("privsyn_budget_left_rho", "Left of the cap at the last release.", {d: b.rho for d, b in left.items()}),
            ("privsyn_budget_left_epsilon", "The same, at the cap's delta.", {d: b.epsilon for d, b in left.items()}),
            ("privsyn_budget_left_releases", "For how many more like it.", {d: b.releases for d, b in left.items()}),
        ):
            gauge = GaugeMetricFamily(name, what, labels=("dataset",))
            for dataset, figure in figures.items():
                gauge.add_metric((dataset,), figure)
            yield gauge
        yield GaugeMetricFamily("privsyn_alerts_untold", "Alerts that could not be delivered yet.", value=self.untold)
        yield GaugeMetricFamily(
            "privsyn_alerts_last_look_timestamp_seconds", "When the server last looked at its runs.", value=self.looked
        )
