"""How many examples of a property are tried: all of them in `make test-all`, a fifth in `make test`."""

from __future__ import annotations

import os

WHOLE = "PRIVSYN_TEST_WHOLE"
"""The environment's variable with which the Makefile asks for all of them."""


def choose_example_count(whole: int) -> int:
    """Return the number of examples of a property for which ``whole`` are enough; never below ten."""
    return whole if os.environ.get(WHOLE) else min(whole, max(10, whole // 5))
