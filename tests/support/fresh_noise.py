"""The statistical tests on fresh seeds, and whether so many fail by chance: `make test-noise`, a plugin of pytest.

Belongs here: the choice of these tests, a seed for all of them that is printed, and the verdict.  Each is marked
``statistical(rate)`` with the probability at which it fails although nothing is wrong.  An exit code of 1 means that
some failure is not chance's: an error that is no failed assertion, or so many failures of tests with such rates that
chance makes them in fewer than one run of 1,000.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence

import numpy as np
import pytest

from tests.support.repeated_noise import FRESH

LEAST = 1e-3
"""The probability of the failures that are still taken for chance."""

_rates = pytest.StashKey[dict[str, float]]()
_failed: dict[str, bool] = {}
"""Failed tests, and whether each failed by an assertion."""


def tail(rates: Sequence[float], failures: int) -> float:
    """The probability that at least so many of independent tests with these rates fail."""
    counts = np.array([1.0])
    for rate in rates:
        counts = np.convolve(counts, [1 - rate, rate])
    return float(min(counts[failures:].sum(), 1.0))


def chance(rates: Sequence[float], failed: Sequence[float]) -> float:
    """The probability of the least likely thing about the failures.

    For each failed test: that so many of those with its rate or a smaller one fail.
    """
    found = [(limit, sum(rate <= limit for rate in failed)) for limit in failed]
    return min((tail([r for r in rates if r <= limit], many) for limit, many in found), default=1.0)


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault(FRESH, str(secrets.randbelow(10**9)))
    config.stash[_rates] = {}


def pytest_report_header() -> str:
    return f"fresh noise; the same again: make test-noise SEED={os.environ[FRESH]}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    rates = {item.nodeid: mark.args[0] for item in items if (mark := item.get_closest_marker("statistical"))}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in rates])
    items[:] = [item for item in items if item.nodeid in rates]
    config.stash[_rates] = rates


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> object:
    report = yield
    if report.failed:
        by_assertion = call.when == "call" and call.excinfo is not None and call.excinfo.errisinstance(AssertionError)
        _failed[item.nodeid] = by_assertion and _failed.get(item.nodeid, True)
    return report


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if exitstatus == pytest.ExitCode.TESTS_FAILED and all(_failed.values()) and _judge(session.config) >= LEAST:
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rates = config.stash[_rates]
    terminalreporter.write_line(
        f"{len(rates)} statistical tests, {len(_failed)} failed; by chance {sum(rates.values()):.2g} fail in a run. "
        f"Such failures or less likely ones come by chance in {_judge(config):.2g} of all runs (wrong is below "
        f"{LEAST:g}). The same again: make test-noise SEED={os.environ[FRESH]}"
    )


def _judge(config: pytest.Config) -> float:
    rates = config.stash[_rates]
    return chance([*rates.values()], [rates[name] for name in _failed])
