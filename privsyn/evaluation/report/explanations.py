"""Figures of an evaluation in words: rounding, the verdict, and the cause of a column's error."""

from __future__ import annotations

from privsyn.data_contracts.evaluation_results import Evaluation, Metric, OneWay, Pair
from privsyn.tasks.metrics.subsample import SHARES

NOISE_FACTOR = 2.0
"""A column's error counts as noise up to this multiple of the L1 expected from noise alone."""

LEAST_NAMED_LOSS = 0.1
"""Smallest change of the worst pair's association that the verdict mentions."""

SHOWN_MISREAD = 5
"""Largest number of misread columns that the verdict names; the rest are counted."""

PAIRS, COLUMNS = "l1_2way", "l1_1way"
"""Metrics whose equivalent subsample the verdict gives: of pairs, or of columns if there is only one column."""


def format_number(value: float | None) -> str:
    """Return a number with three significant digits, thousands separated; a dash for None."""
    if value is None:
        return "–"
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value):,}"
    if abs(value) >= 100:
        return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.1f}"
    if abs(value) < 1e-4:
        return f"{value:.1e}"
    return f"{value:.3g}"


def format_association(value: float | None) -> str:
    """Return an association with two decimals; a dash for None."""
    return "–" if value is None else f"{value:.2f}"


def format_percent(share: float) -> str:
    """Return a share (0..1) as a percentage of two significant digits: 12 %, 0.4 %."""
    value = 100 * share
    if 0 < value < 0.01:
        return "less than 0.01 %"
    return f"{value:.0f} %" if value >= 9.95 or value == 0 else f"{value:.2g} %"


def format_part(amount: float, whole: float) -> str:
    """Return ``amount`` as a percentage of ``whole``; 0 % of nothing."""
    return format_percent(amount / whole if whole else 0.0)


def make_sentence(text: str) -> str:
    """Return the text with a capital first letter and a full stop; empty text stays empty."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if not text or text[-1] in ".!?" else ".")


def explain_column(one_way: OneWay) -> str:
    """Return the larger part of one column's error: ``noise`` or ``synthesis``.

    ``not known`` if the noise is unknown; ``misread`` if the real column is misread.
    """
    if one_way.misread:
        return "misread"
    if one_way.noise_l1 is None:
        return "not known"
    return "noise" if one_way.l1 <= NOISE_FACTOR * one_way.noise_l1 else "synthesis"


def list_worst_columns(evaluation: Evaluation) -> list[OneWay]:
    """Return all columns by L1 error, worst first."""
    return sorted(evaluation.one_ways, key=lambda o: -o.l1)


def measure_lost_association(pair: Pair) -> float:
    """Return the distance between a pair's synthetic and real association, 0..2; 0 if one is undefined."""
    if pair.association_real is None or pair.association_synthetic is None:
        return 0.0
    return abs(pair.association_synthetic - pair.association_real)


def list_worst_pairs(evaluation: Evaluation) -> list[Pair]:
    """Return all pairs, worst first: by the larger of the share of wrong rows and the lost association.

    A correlation can be lost although hardly any row is in a wrong cell.
    """
    return sorted(evaluation.pairs, key=lambda p: -max(p.l1 / 2, measure_lost_association(p)))


def list_headlines(evaluation: Evaluation) -> list[Metric]:
    """Return the release's headline metrics, in the order of computation."""
    return [m for m in evaluation.release.metrics if m.headline]


def write_verdict(evaluation: Evaluation) -> str:
    """Return one sentence: mean error of pairs, equivalent sample, columns within noise, and the worst pair.

    Half the L1 distance is the share of rows that must change for the two tables to agree.  If a table has no rows, the
    sentence says only that.
    """
    if empty := _describe_empty(evaluation):
        return empty
    parts = (
        _describe_misread(evaluation),
        _describe_typical(evaluation),
        _join_columns(evaluation),
        _describe_worst(evaluation),
    )
    return "; ".join(p for p in parts if p) + "."


def _describe_misread(evaluation: Evaluation) -> str:
    names = [o.column for o in evaluation.one_ways if o.misread]
    if not names:
        return ""
    shown = ", ".join(names[:SHOWN_MISREAD]) + (
        f" and {len(names) - SHOWN_MISREAD} more" * (len(names) > SHOWN_MISREAD)
    )
    return f"The real table is misread in {shown}, so these columns of the release are wrong at any noise"


def _describe_empty(evaluation: Evaluation) -> str:
    beginnings = {(True, True): "The real and the synthetic table have", (True, False): "The real table has"}
    beginnings[False, True] = "The synthetic table has"
    subject = beginnings.get((not evaluation.rows_real, not evaluation.release.rows))
    return "" if subject is None else f"{subject} no rows: how close the two are cannot be said."


def _describe_typical(evaluation: Evaluation) -> str:
    errors = [p.l1 for p in evaluation.pairs] or [o.l1 for o in evaluation.one_ways]
    if not errors:
        return "There is no column to compare"
    moved = format_percent(sum(errors) / len(errors) / 2)
    begin = "on" if _describe_misread(evaluation) else "On"
    text = f"{begin} average {moved} of the rows would have to be different for a table of "
    text += "two columns to agree with the real one" if evaluation.pairs else "one column to agree with the real one"
    name = PAIRS if evaluation.pairs else COLUMNS
    sample = next((m.subsample for m in evaluation.release.metrics if m.name == name), None)
    return text if sample is None else f"{text}, {compare_to_sample(sample, 'about ')}"


def compare_to_sample(share: float, about: str = "") -> str:
    """Return a score in words, as a random sample of this share of the real rows.

    At the smallest share tried, the score may be worse than the sample's.
    """
    begin = "no closer than" if share <= SHARES[0] else f"{about}as close as"
    return f"{begin} a random sample of {format_percent(share)} of the real rows"


def _join_columns(evaluation: Evaluation) -> str:
    with_noise = [o for o in evaluation.one_ways if o.noise_l1 is not None]
    if not with_noise:
        return ""
    within = sum(explain_column(o) == "noise" for o in with_noise)
    if within == len(with_noise):
        return (
            f"all {within} columns on their own are within the noise"
            if within > 1
            else "its column is within the noise"
        )
    return f"{within} of {len(with_noise)} columns on their own are within the noise"


def _describe_worst(evaluation: Evaluation) -> str:
    if not evaluation.pairs:
        return ""
    worst = list_worst_pairs(evaluation)[0]
    because = {"noise": "mostly noise", "synthesis": "mostly from synthesis", "misread": "one is misread"}
    why = because.get(worst.cause, "the pair was not selected for measuring")
    moved = ""
    if measure_lost_association(worst) >= LEAST_NAMED_LOSS:
        moved = f", whose association went from {worst.association_real:.2f} to {worst.association_synthetic:.2f}"
    return f"the worst pair is {worst.a} with {worst.b}{moved} ({why})"
