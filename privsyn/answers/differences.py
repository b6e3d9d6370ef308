"""Differences of two releases, such as two periods of one data set, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from privsyn.answers.answer_table import FIGURES
from privsyn.base.errors import RequestError

if TYPE_CHECKING:
    import pandas as pd

    from privsyn.answers.questions import Questions


class Comparison:
    """What changed from one release to another: the same questions to both, and the differences of the answers.

    The noise of two releases is independent.  Intervals of differences follow from both intervals (MOVER, Zou and
    Donner 2008): low = d - sqrt((e1 - l1)^2 + (u2 - e2)^2), and high likewise.

    Privacy: it knows what the two released folders hold, nothing else.
    """

    def __init__(self, later: Questions, earlier: Questions) -> None:
        self._later, self._earlier = later, earlier

    def count(self, *by: str, where: str | None = None, level: float = 0.95) -> pd.DataFrame:
        """Differences of counts, later less earlier; arguments as of ``Release.count``."""
        return self._difference(by, lambda r: r.count(*by, where=where, level=level))

    def share(
        self, what: str, by: str | Sequence[str] = (), where: str | None = None, level: float = 0.95
    ) -> pd.DataFrame:
        """Differences of shares; arguments as of ``Release.share``."""
        return self._difference(by, lambda r: r.share(what, by=by, where=where, level=level))

    def mean(
        self, column: str, by: str | Sequence[str] = (), where: str | None = None, level: float = 0.95
    ) -> pd.DataFrame:
        """Differences of means; arguments as of ``Release.mean``."""
        return self._difference(by, lambda r: r.mean(column, by=by, where=where, level=level))

    def _difference(self, by: str | Sequence[str], ask: Callable[[Questions], pd.DataFrame]) -> pd.DataFrame:
        later, earlier = ask(self._later), ask(self._earlier)
        labels = [c for c in later.columns if c not in FIGURES]
        if labels:
            both = later.merge(earlier, on=labels, suffixes=("_later", "_earlier"))
        else:
            both = later.add_suffix("_later").join(earlier.add_suffix("_earlier"))
        if not len(both):
            raise RequestError(
                "the two releases have no level in common here: compression combined other values",
                "Ask for fewer columns",
                "query.columns",
            )
        e1, e2 = both["estimate_later"], both["estimate_earlier"]
        low = np.hypot(e1 - both["low_later"], both["high_earlier"] - e2)
        high = np.hypot(both["high_later"] - e1, e2 - both["low_earlier"])
        both["estimate"], both["std_error"] = e1 - e2, np.hypot(both["std_error_later"], both["std_error_earlier"])
        both["low"], both["high"] = both["estimate"] - low, both["estimate"] + high
        both["source"] = [
            _choose_weaker(a, b) for a, b in zip(both["source_later"], both["source_earlier"], strict=True)
        ]
        found: Any = both[[*labels, *FIGURES]]
        found.attrs["about"] = f"difference of {later.attrs['about']}"
        words = dict.fromkeys((*later.attrs["words"], *earlier.attrs["words"]))
        left = len(later) + len(earlier) - 2 * len(both)
        more = [f"{left} levels are in one of the two releases only and are left out."] if left else []
        found.attrs["words"] = [*words, *more]
        return found


_ORDER = ("measured", "implied", "simulated", "model", "not known")


def _choose_weaker(one: str, other: str) -> str:
    return max(one, other, key=_ORDER.index)
