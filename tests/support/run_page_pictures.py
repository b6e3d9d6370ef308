"""The picture of a run page, drawn here and the same one once: a process of its own takes longer than a run.

Belongs here: what stands in for that process.  Does not belong here: its tests,
which import ``draw_in_subprocess`` by name.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from privsyn.publish import overview_chart
from privsyn.publish.overview_chart import MarginalOverview, OneWayOverview, draw_overview

_DRAWN: dict[str, bytes] = {}


def picture_here(one_ways: Sequence[OneWayOverview], marginals: Sequence[MarginalOverview], *, title: str) -> bytes:
    """The PNG bytes of :func:`draw_overview`, drawn in this process the first time that these figures are asked for."""
    asked = repr((one_ways, marginals, title))
    if asked not in _DRAWN:
        _DRAWN[asked] = draw_overview(one_ways, marginals, title=title)
    return _DRAWN[asked]


def put_in(patch: pytest.MonkeyPatch) -> None:
    """Let flow runs of this process draw so."""
    patch.setattr(overview_chart, "draw_in_subprocess", picture_here)
