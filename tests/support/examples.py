"""How many examples and parameters are tried: all of them in `make test-all`, a part of them in `make test`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

WHOLE = "PRIVSYN_TEST_WHOLE"
"""The environment's variable with which the Makefile asks for all of them."""


def choose_example_count(whole: int) -> int:
    """Return the number of examples of a property for which ``whole`` are enough; never below five."""
    return whole if os.environ.get(WHOLE) else min(whole, max(5, whole // 10))


def keep_first(values: Iterable[Any], fast: int = 1) -> list[Any]:
    """Return a test's parameters with all but the first ``fast`` of them slow: each of them takes as long."""
    return [v if i < fast else pytest.param(v, marks=pytest.mark.slow) for i, v in enumerate(values)]
