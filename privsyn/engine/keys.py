"""Lineage keys: the cache key of every step, known before anything runs."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from privsyn.data_contracts.artifacts import StepKind
from privsyn.data_contracts.receipts import SMOOTHING
from privsyn.engine.plan import Plan
from privsyn.engine.request import Request
from privsyn.engine.step import Step, release_steps
from privsyn.storage.records import CounterRecord, GenerationRecord, Records, RunRecord
from privsyn.tasks.privacy.noise import NoiseSource, OpenDPNoise


def compute_lineage_keys(
    request: Request,
    fingerprint: str,
    generation: int,
    noise: type[NoiseSource],
    steps: Sequence[Step],
    period: str | None = None,
    *,
    known_keys: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Return the cache key of every step of ``steps``.

    A key is SHA-256 over the step's name, version and own settings, and its inputs' keys.  The first step adds the
    data's fingerprint (an HMAC).  Release steps add the generation of their noise and its source, so nothing made with
    test noise is taken for a release.  They also add the period of a scheduled release, so each period draws and pays
    whether or not the data changed: when a release appears reveals nothing about the data.  ``known_keys``: step ->
    key, for steps whose tables an earlier run has.
    """
    keys: dict[str, str] = {}
    for step in steps:
        if step.name in known_keys:
            keys[step.name] = known_keys[step.name]
            continue
        parts = [step.name, str(step.version), step.key_json(request)]
        parts += sorted({keys[name] for name in step.producers}) or [fingerprint]
        if step.kind is StepKind.RELEASE:
            parts += [f"generation {generation}", noise.__name__]
            parts += [f"pricing {request.pricing} {SMOOTHING}"] if request.pricing != "zcdp" else []
            parts += [f"period {period}"] if period is not None else []
        keys[step.name] = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return keys


def name_request(plan: Plan) -> str:
    """Return the name of a request's record: a hash of the public facts that its noise depends on.

    Requests with one name draw the same noise from the same data; they differ only in post-processing and publishing.
    """
    request = plan.request.order_columns(tuple(sorted(plan.request.spec.released_columns)))
    keys = compute_lineage_keys(request, "", 0, OpenDPNoise, plan.steps, plan.period)
    drawn_for = [keys[step.name] for step in release_steps(plan.steps)]
    drawn_and_asked = json.dumps([drawn_for, dict(plan.asks)], sort_keys=True)
    return f"request-{hashlib.sha256(drawn_and_asked.encode()).hexdigest()}"


@dataclass(frozen=True)
class Generation:
    """The current generation of a request's noise; saved once the ledger has reserved it.

    Numbers are unique for a table of codes (``counter``, ``last``), so ``fresh`` shares no noise with any other
    request.  ``finished``: a run with this noise is published.  ``killed_fresh``: ``fresh`` began it and did not finish
    it; after a crash, the same command continues it and pays for no other draw.
    """

    record: str
    number: int
    finished: bool
    killed_fresh: bool
    counter: str
    last: int


def read_generation(records: Records, keys: Mapping[str, str], steps: Sequence[Step]) -> Generation:
    """Return the current generation of a request, named by the keys (at generation 0) of its first step and looks."""
    record, counter = f"generation-{key_draws(keys, steps)}", f"generations-{keys[steps[0].name]}"
    current = records.load_as(record, GenerationRecord) or GenerationRecord(generation=0, finished=False, fresh=False)
    last = (records.load_as(counter, CounterRecord) or CounterRecord(last=0)).last
    killed_fresh = current.fresh and not current.finished
    return Generation(record, current.generation, current.finished, killed_fresh, counter, last)


def key_draws(keys: Mapping[str, str], steps: Sequence[Step]) -> str:
    """Return the key of everything that a run draws; it names the generation of its noise."""
    return _join_keys(keys, steps, release_steps(steps)[-1])


def key_result(keys: Mapping[str, str], steps: Sequence[Step]) -> str:
    """Return the key of everything that a run releases; it names the run's record."""
    return _join_keys(keys, steps, steps[-1])


def _join_keys(keys: Mapping[str, str], steps: Sequence[Step], last: Step) -> str:
    """Return one key for the step ``last`` and all looks at private rows, unique to the request.

    It is the key of ``last`` if all looks are its ancestors, as in earlier versions; else a hash of the keys.
    """
    by_name, behind = {step.name: step for step in steps}, set[str]()
    waiting = [last.name]
    while waiting:
        name = waiting.pop()
        if name not in behind:
            behind.add(name)
            waiting += by_name[name].producers
    other_looks = [keys[step.name] for step in release_steps(steps) if step.name not in behind]
    if not other_looks:
        return keys[last.name]
    return hashlib.sha256(json.dumps([keys[last.name], *other_looks]).encode()).hexdigest()


def name_run(records: Records, beginning: str, result: str) -> str:
    """Return the run's public name.

    The name kept for the key ``result`` (:func:`key_result`), or a new random one that reveals nothing about the data.
    """
    record = records.load_as(f"run-{result}", RunRecord)
    return f"{beginning}-{secrets.token_hex(4)}" if record is None else record.run


def keep_run_name(records: Records, run: str, result: str) -> None:
    """Keep the run's name for a re-run."""
    records.save(f"run-{result}", RunRecord(run=run).model_dump())
