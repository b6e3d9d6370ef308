"""How much noise k marginals get by each way of composing: Figure 2 of the DPSyn report.

Li, Zhang and Wang, DPSyn, sections 2.3 to 2.5: one person adds 1 to one cell of each of the k marginals (unbounded
neighbours), so that each has L1 and L2 sensitivity 1, and all k together keep (epsilon, delta).  The report gives the
parts and refers to a theorem for their sum; its Gaussian line of advanced composition is named in the figure's
legend only, which its text does not hold, so delta is split there as said at :func:`compute_gaussian_advanced`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import altair as alt
from scipy.optimize import brentq

from privsyn.tasks.privacy.accountant import convert_epsilon_to_rho

SETTINGS = ((0.01, 1e-8), (0.01, 1e-12), (1.0, 1e-8), (1.0, 1e-12))
"""The figure's four pairs (epsilon, delta)."""

REPORTED = (18, 28, 19, 28)
"""Where the report has naive Laplace and Gaussian in zCDP cross, for SETTINGS, as whole k."""


def compute_laplace_naive(epsilon: float, delta: float, k: float) -> float:
    """Return basic composition (section 2.4): each marginal gets epsilon / k, so Lap(k / epsilon).

    Delta is not used.
    """
    return math.sqrt(2.0) * k / epsilon


def compute_laplace_advanced(epsilon: float, delta: float, k: float) -> float:
    """Advanced composition (Dwork et al. 2010) of k pure mechanisms, delta' = delta: Lap(1 / e) each.

    e solves e sqrt(2 k ln(1/delta)) + k e (exp(e) - 1) = epsilon.
    """
    return math.sqrt(2.0) / _compute_each(epsilon, delta, k)


def compute_gaussian_advanced(epsilon: float, delta: float, k: float) -> float:
    """Return the same of k Gaussian mechanisms: half of delta is delta', the other half is split evenly.

    sigma = sqrt(2 ln(1.25 / d)) / e (Dwork and Roth 2014), with d = delta / (2 k) and e as in laplace_advanced at
    delta / 2.  Proved for e < 1.
    """
    return math.sqrt(2.0 * math.log(1.25 / (delta / (2.0 * k)))) / _compute_each(epsilon, delta / 2.0, k)


def compute_laplace_zcdp(epsilon: float, delta: float, k: float) -> float:
    """Laplace in zCDP: Lap(x) costs 1 / (2 x^2), k of them make up rho, the report's conversion at delta."""
    return math.sqrt(2.0) * compute_gaussian_zcdp(epsilon, delta, k)


def compute_gaussian_zcdp(epsilon: float, delta: float, k: float) -> float:
    """Gaussian in zCDP: N(0, sigma^2) costs 1 / (2 sigma^2), so sigma = sqrt(k / (2 rho)).

    rho + 2 sqrt(rho ln(1/delta)) = epsilon (PrivSyn, Theorem 2): the accountant ``paper``.
    """
    return math.sqrt(k / (2.0 * float(convert_epsilon_to_rho(epsilon, delta, "paper"))))


COMPOSITIONS: dict[str, Callable[[float, float, float], float]] = {
    "Laplace, naive": compute_laplace_naive,
    "Laplace, advanced": compute_laplace_advanced,
    "Gaussian, advanced": compute_gaussian_advanced,
    "Laplace, zCDP": compute_laplace_zcdp,
    "Gaussian, zCDP": compute_gaussian_zcdp,
}
"""The figure's five lines: (epsilon, delta, k) to the standard deviation of each cell's noise, in counts."""


def find_crossing(epsilon: float, delta: float) -> float:
    """Return the k at which naive Laplace and Gaussian in zCDP have the same noise: epsilon^2 / (4 rho).

    From sqrt(2) k / epsilon = sqrt(k / (2 rho)); below it naive Laplace has less noise, above it more.
    """
    return epsilon**2 / (4.0 * float(convert_epsilon_to_rho(epsilon, delta, "paper")))


def list_crossings() -> list[str]:
    """Return the crossings beside the report's, as markdown."""
    rows = ["| epsilon | delta | crossing at k | to a whole k | the report |", "|---|---|---|---|---|"]
    for (epsilon, delta), reported in zip(SETTINGS, REPORTED, strict=True):
        k = find_crossing(epsilon, delta)
        rows.append(f"| {epsilon:g} | {delta:g} | {k:.3f} | {round(k)} | {reported} |")
    return rows


def build_chart(colors: Sequence[str], most: int = 100) -> dict[str, Any]:
    """Figure 2 as Vega-Lite: one panel a setting, k from 1 to ``most`` against the standard deviation, both log."""
    panels = []
    for epsilon, delta in SETTINGS:
        points = [
            {"k": k, "sigma": sigma(epsilon, delta, k), "composition": name}
            for name, sigma in COMPOSITIONS.items()
            for k in range(1, most + 1)
        ]
        color = alt.Color("composition:N", scale=alt.Scale(domain=list(COMPOSITIONS), range=list(colors)), title=None)
        dash = alt.StrokeDash("composition:N", scale=alt.Scale(domain=list(COMPOSITIONS)), title=None)
        axis = alt.Scale(type="log", nice=False)
        lines = alt.Chart(alt.Data(values=points)).mark_line()
        x = alt.X("k:Q", scale=axis, title="marginals k")
        y = alt.Y("sigma:Q", scale=alt.Scale(type="log"), title="standard deviation, counts")
        title = f"epsilon {epsilon:g}, delta {delta:g}"
        panels.append(lines.encode(x, y, color, dash).properties(width=300, height=200, title=title))
    return dict(alt.concat(*panels, columns=2).configure_legend(orient="bottom").to_dict())


def _compute_each(epsilon: float, delta: float, k: float) -> float:
    """Return the epsilon of each of k mechanisms whose advanced composition at delta' = ``delta`` is ``epsilon``."""

    def excess(each: float) -> float:
        return each * math.sqrt(2.0 * k * math.log(1.0 / delta)) + k * each * math.expm1(each) - epsilon

    return float(brentq(excess, 0.0, epsilon / math.sqrt(2.0 * k * math.log(1.0 / delta)), xtol=1e-18, rtol=1e-14))
