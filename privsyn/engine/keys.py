"""Lineage keys: the cache key of every step, known before anything runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from privsyn.data_contracts.artifacts import Kind
from privsyn.data_contracts.receipts import SMOOTHING
from privsyn.engine.request import Request
from privsyn.engine.step import Step
from privsyn.tasks.privacy.noise import NoiseSource


def compute_lineage_keys(
    request: Request,
    fingerprint: str,
    generation: int,
    noise: type[NoiseSource],
    steps: Sequence[Step],
    period: str | None = None,
    *,
    versions: bool = True,
    given: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Return the cache key of every step of ``steps``.

    A key is SHA-256 over the step's name, version and own settings and its inputs' keys; the first step
    adds the data's fingerprint (an HMAC), the release steps the generation of their noise and its source: what
    was made with test noise is never taken for a release.  They add the period of a scheduled release too, so that
    each period draws and pays whether or not the data changed: when a release appears tells nothing of the data.
    ``given``: step -> key, of steps whose tables an earlier run has.
    Without ``versions`` the keys identify the request under any version of the steps.
    """
    keys: dict[str, str] = {}
    for step in steps:
        if step.name in given:
            keys[step.name] = given[step.name]
            continue
        parts = [step.name, *([str(step.version)] if versions else []), step.settings_json(request)]
        parts += sorted({keys[name] for name in step.producers}) or [fingerprint]
        if step.kind is Kind.RELEASE:
            parts += [f"generation {generation}", noise.__name__]
            parts += [f"pricing {request.pricing} {SMOOTHING}"] if request.pricing != "zcdp" else []
            parts += [f"period {period}"] if period is not None else []
        keys[step.name] = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return keys
