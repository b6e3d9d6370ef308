"""Peers in an environment of their own: codes in are codes out."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import peers
from benchmarks.peers import Peer, PeerError, echo
from privsyn.data_contracts.domain import Domain
from privsyn.evaluation.comparison.method import MethodInput
from privsyn.tasks.codecs.cells import AttributeBins
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.privacy.noise import SeededNoise

DOMAIN = Domain.of({"a": 3, "b": 1, "large": 300, "in two bins": 4})
CODES = (np.array([2, 0, 1, 2]), np.zeros(4), np.array([299, 0, 255, 256]), np.array([3, 0, 1, 2]))


def trial() -> MethodInput:
    types = (np.uint8, np.uint8, np.uint16, np.uint8)
    table = CodeTable(DOMAIN, tuple(c.astype(t) for c, t in zip(CODES, types, strict=True)))
    groups = {a: np.arange(n, dtype=np.int32) for a, n in zip(DOMAIN.attributes, DOMAIN.sizes, strict=True)}
    groups["in two bins"] = np.array([0, 0, 1, 1], np.int32)
    return MethodInput(table, {a: AttributeBins(g) for a, g in groups.items()}, 1.0, 1e-9, 1, SeededNoise(0))


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment "dpmm" is this one's interpreter; no other is there."""
    monkeypatch.setattr(peers, "ENVIRONMENTS", tmp_path)
    python = tmp_path / "dpmm" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    return tmp_path


def test_codes_of_the_public_bins_come_back_as_they_went() -> None:
    made, used = echo().run(trial())
    assert made.table.domain == trial().bins
    expected = trial().to_bins(trial().rows)
    for attribute in DOMAIN.attributes:
        assert made.table.column(attribute).dtype == expected.column(attribute).dtype
        assert (made.table.column(attribute) == expected.column(attribute)).all()
    assert used.wall >= 0
    assert used.peak_mb > 1


@pytest.mark.parametrize(
    ("codes", "problem"),
    [
        (np.array([[3, 0, 0, 0]]), "code 3 for a, which has 3"),
        (np.array([[0, 0, 0, 2]]), "code 2 for in two bins, which has 2"),
        (np.array([[0, -1, 0, 0]]), "negative"),
        (np.array([[0, 0, 0]]), "3\\) codes for 4 columns"),
        (np.array([0, 0, 0, 0]), "4 columns"),
    ],
)
def test_what_is_no_table_of_codes_is_refused(codes: np.ndarray, problem: str) -> None:
    with pytest.raises(PeerError, match=problem):
        echo()._table(codes, trial().bins)


def test_the_version_is_the_installed_package_s(environment: Path) -> None:
    peer = Peer("x", "dpmm", "some-package", "X", "")
    assert peer.version == ""
    (environment / "dpmm/lib/python3.11/site-packages/some_package-1.2.3.dist-info").mkdir(parents=True)
    assert peer.version == "1.2.3"
