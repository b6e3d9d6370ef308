"""The words of the quality figures: what each one means, and the README.md beside them."""

from __future__ import annotations

from privsyn.data_contracts.certificate import Certificate
from privsyn.data_contracts.quality_report import QualityReport
from privsyn.publish.markdown import escape_text
from privsyn.publish.release_note import Looks, describe_cost, write_promise

TITLES = {
    "one_way": "Columns: mean difference of the counts",
    "pairs": "Pairs of columns: mean difference of the counts",
    "triples": "Triples of columns: mean difference of the counts",
    "range_queries": "Range queries: mean difference of the answers",
}

_APART = "0 where all counts agree, 2 where two tables of one size have nothing in common"

_MEANINGS = {
    "one_way": "For every column: the counts of its values (in public bins) in the private and in the synthetic table, "
    f"their differences added up, per synthetic row; the mean over the columns. {_APART}",
    "pairs": "The same for the joint counts of two columns: over all pairs, or a fixed random choice of 1,000. "
    f"{_APART}",
    "triples": f"The same for the joint counts of three columns: over a fixed random choice of at most 100. {_APART}",
    "range_queries": "How many rows lie in ranges of {ranges}: the difference of the two tables' answers, "
    "per synthetic row; the mean over 1,000 fixed random queries. 0 where all answers agree",
}


def describe_figure(figure: str, columns: int) -> str:
    """Return what a figure says of tables of that many columns, in plain words.

    A range query has three of them, or all.
    """
    ranges = {1: "the column", 2: "the two columns"}.get(columns, "three columns")
    return _MEANINGS[figure].format(ranges=ranges)


def write_quality_note(report: QualityReport, certificate: Certificate, looks: Looks, *, private: bool) -> str:
    """Markdown: what the figures are about, what is promised, the figures with their noise, how to read them."""
    warning = "" if private else "\n\n**NOT PRIVATE: made with test noise. Do not publish this folder.**"
    heading = (
        f"# How close is the release `{report.release}` to its private table?{warning}\n\n"
        f"{len(report.figures)} figures that compare the {report.synthetic_rows:,} rows of its synthetic table "
        "(SHA-256 in `figures.json`) with the private table. Noise was added to each; nothing else of the comparison "
        "is released."
    )
    return (
        "\n\n".join(
            [
                heading,
                write_promise(certificate),
                _format_figures(report),
                _explain_figures(certificate),
                describe_cost(certificate, looks),
            ]
        )
        + "\n"
    )


def _format_figures(report: QualityReport) -> str:
    lines = ["## The figures", "", "| figure | value | standard deviation of its noise |", "|---|---|---|"]
    lines += [f"| {f.title} | {f.value:.4g} | {f.noise_sd:.2g} |" for f in report.figures]
    return "\n".join([*lines, "", *(f"- **{f.title}.** {f.meaning}." for f in report.figures)])


def _explain_figures(certificate: Certificate) -> str:
    unmeasured = ", ".join(map(escape_text, (certificate.not_measured or {}).get("columns", ())))
    return (
        "## How to read them\n\n"
        "- Two standard deviations of noise to either side hold the exact figure in about 95 of 100 cases; noise may "
        "take a small figure below 0.\n"
        "- Differences are divided by the number of synthetic rows, since that of the private rows is private. A "
        "difference in size of the two tables counts as a difference, so the figures are not quite the distances of "
        "shares that other reports state.\n"
        "- The release and these figures together cost the sum of both; the ledger has charged it."
        + (
            f"\n- In no figure, since they were not measured and are drawn at random: {unmeasured}."
            if unmeasured
            else ""
        )
    )
