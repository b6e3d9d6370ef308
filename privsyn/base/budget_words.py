"""Wording for the use of a data set's lifetime budget, shared by every surface that shows a budget.

Shares are of the cap's rho, which adds up over releases.  Epsilons do not add up, so they come second.
"""

from __future__ import annotations

from fractions import Fraction

SMALLEST_PERCENT, LARGEST_PERCENT = 0.001, 99.99
"""Shares outside these are shown as bounds, so that only zero is "0 %" and only the whole "100 %"."""


def format_share(part: Fraction, whole: Fraction) -> str:
    """Return a share in percent, such as ``0.93 %`` or ``99.97 %``; only zero is 0 %, only the whole 100 %."""
    share = Fraction(part) / whole
    if share <= 0:
        return "0 %"
    if share == 1:
        return "100 %"
    percent = float(100 * share)
    if share > 1:
        return f"{percent:,.0f} %" if percent >= 101 else "over 100 %"
    if percent < SMALLEST_PERCENT:
        return f"under {SMALLEST_PERCENT:g} %"
    if percent > LARGEST_PERCENT:
        return f"over {LARGEST_PERCENT:g} %"
    if percent < 1:
        return f"{float(f'{percent:.2g}'):f}".rstrip("0").rstrip(".") + " %"
    text = f"{percent:.2f}" if percent > 99 else f"{percent:.1f}"
    return f"{text.rstrip('0').rstrip('.')} %"


def describe_use(spent: Fraction, cap: Fraction, price: Fraction | None, priced_release: str = "the last one") -> str:
    """Return how much of a cap is used, and how many more releases of ``price`` fit; all in rho.

    ``price``: of the release named by ``priced_release``; None or 0 to return only the share.
    """
    used = f"{format_share(spent, cap)} used"
    return f"{used}; {describe_room(cap - spent, price, priced_release)}" if price else used


def describe_room(remaining: Fraction, price: Fraction, priced_release: str = "the last one") -> str:
    """Return how many more releases of ``price`` fit into the remaining budget; both in rho."""
    more = int(max(remaining, Fraction(0)) / price)
    if more == 0:
        return f"no further release like {priced_release} fits"
    return f"{more:,} more release{'s like' if more > 1 else ' like'} {priced_release} fit{'' if more > 1 else 's'}"


def describe_epsilon(epsilon: float, cap_epsilon: float, cap_delta: float) -> str:
    """Return an epsilon with the cap's epsilon, at the cap's delta: ``epsilon 0.93 of 4 at delta 1e-08``."""
    return f"epsilon {epsilon:.3g} of {cap_epsilon:g} at delta {cap_delta:g}"
