"""The picture is drawn by another process, whose end, however hard, ends nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from privsyn.publish.overview_chart import (
    DrawingError,
    MarginalOverview,
    OneWayOverview,
    draw_in_subprocess,
    draw_overview,
)
from tests.support.places import ROOT

EVIL = "</script><b>\"'\\ \u2028`${x}"
ONE_WAYS = [OneWayOverview(EVIL, ("x", "y"), (0.5, 0.5), (0.1, 0.1), (0.6, 0.4))]
MARGINALS = [MarginalOverview((EVIL, "b"), 4, 0.1, 0.2)]

LIMITED = """
import resource, sys
from tests.unit.publish.test_drawing_process import *
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
try:
    DRAW(ONE_WAYS, MARGINALS, title="t")
except DrawingError as error:
    print("left out:", error)
"""


@pytest.mark.slow
def test_it_is_the_same_picture() -> None:
    assert draw_in_subprocess(ONE_WAYS, MARGINALS, title=EVIL) == draw_overview(ONE_WAYS, MARGINALS, title=EVIL)


@pytest.mark.parametrize(
    ("draw", "outcome"),
    [
        ("draw_in_subprocess", (True, "left out: CalledProcessError\n")),
        pytest.param("draw_overview", (False, ""), marks=pytest.mark.slow),
    ],
)
def test_where_memory_is_limited_the_drawing_ends_and_the_caller_goes_on(draw: str, outcome: tuple[bool, str]) -> None:
    """A limit of 4 GiB of addresses ends a process that draws by itself, which is the planted mutant."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED.replace("DRAW", draw)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0, done.stdout) == outcome


@pytest.mark.parametrize("script", ["kill -TRAP $$", "exit 1"])
def test_a_process_that_ends_without_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(DrawingError):
        draw_in_subprocess(ONE_WAYS, MARGINALS, title="t")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(DrawingError, match="FileNotFoundError"):
        draw_in_subprocess(ONE_WAYS, MARGINALS, title="t")
