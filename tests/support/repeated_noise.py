"""Release noise that follows from the test's name, so that a test that passed once passes again.

The secret by which rows are chosen is the same in every private folder, for the same reason.

Belongs here: what stands in for OpenDP's draws in tests of everything else.  Tests of the draws themselves are marked
``drawn_noise`` and get these; so do processes that a test starts.  A test that passed once would pass for ever: with
PRIVSYN_TEST_NOISE all of it follows from that number, too (tests/support/fresh_noise.py).
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

from privsyn.storage.store import Store
from privsyn.tasks.privacy import noise

FRESH = "PRIVSYN_TEST_NOISE"
"""The variable with the number that makes the noise of a run another one; empty: that of every run."""

_DRAW, _POOL = noise.OpenDPNoise.draw, noise.ThreadPoolExecutor
_CALLS: Counter[str] = Counter()
_SHARED: list[str] = []  # the innermost last; draws come from other threads, too


def draw(source: noise.OpenDPNoise, sigma: float, cells: int) -> noise.Counts:
    """``cells`` rounded normal draws, int64: the same ones for the same call of the same test."""
    noise._check(sigma, cells)
    test = _SHARED[-1] if _SHARED else os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    _CALLS[test] += 1
    seed = hashlib.sha256(f"{test}\0{_CALLS[test]}{os.environ.get(FRESH, '')}".encode()).digest()
    normal = np.random.default_rng(int.from_bytes(seed, "big")).normal(0.0, sigma, cells)
    return np.rint(normal).astype(np.int64)


@contextmanager
def share_noise(name: str) -> Iterator[None]:
    """Let the noise of what several tests share follow from ``name``, whichever of them asks for it first."""
    _SHARED.append(name)
    try:
        yield
    finally:
        _SHARED.pop()


def renew(seed: int) -> int:
    """``seed``; with PRIVSYN_TEST_NOISE another one, which follows from both."""
    number = os.environ.get(FRESH)
    return seed if not number else int.from_bytes(hashlib.sha256(f"{number} {seed}".encode()).digest()[:4], "big")


def put_in(patch: pytest.MonkeyPatch) -> None:
    """Let every draw of this process, in their order, be a repeated one."""
    patch.setattr(noise.OpenDPNoise, "draw", draw)
    patch.setattr(noise, "ThreadPoolExecutor", lambda threads: ThreadPoolExecutor(1))
    patch.setattr(Store, "row_key", property(lambda store: hashlib.sha256(os.environ.get(FRESH, "").encode()).digest()))


def take_out(patch: pytest.MonkeyPatch) -> None:
    """Let the draws of this process be OpenDP's again."""
    patch.setattr(noise.OpenDPNoise, "draw", _DRAW)
    patch.setattr(noise, "ThreadPoolExecutor", _POOL)
