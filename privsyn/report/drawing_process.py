"""The overview's picture, drawn in a process of its own: what ends the drawing, want of memory say, ends nothing else.

The converter ends its whole process where it cannot reserve memory (``ulimit -v``), which no ``except`` catches.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from privsyn.report.overview_chart import MarginalOverview, OneWayOverview, draw_overview

_SECONDS = 120
"""After which a drawing is given up."""


class DrawingError(Exception):
    """The picture was not drawn."""


def draw_in_subprocess(
    one_ways: Sequence[OneWayOverview], marginals: Sequence[MarginalOverview], *, title: str
) -> bytes:
    """Return the PNG bytes of :func:`draw_overview`.

    Raises DrawingError if the process that draws ends without a picture, or takes more than two minutes.
    """
    asked = {"one_ways": list(map(asdict, one_ways)), "marginals": list(map(asdict, marginals)), "title": title}
    try:
        done = subprocess.run(  # noqa: S603 - this module, with this interpreter
            [sys.executable, "-m", __name__],
            input=json.dumps(asked).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            timeout=_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise DrawingError(type(error).__name__) from None
    return done.stdout


def _draw() -> None:
    asked = json.load(sys.stdin)
    one_ways = [OneWayOverview(**{k: _to_tuple(v) for k, v in each.items()}) for each in asked["one_ways"]]
    marginals = [MarginalOverview(**{k: _to_tuple(v) for k, v in each.items()}) for each in asked["marginals"]]
    sys.stdout.buffer.write(draw_overview(one_ways, marginals, title=asked["title"]))


def _to_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


if __name__ == "__main__":
    _draw()
