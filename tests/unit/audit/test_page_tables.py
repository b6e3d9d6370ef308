"""The tables of docs/audit.md: what the page shows of the lines that an audit prints."""

from __future__ import annotations

from audit import goodness_of_fit, recorder_table, referee_table, side_channels, table


def test_the_referees_line_of_a_mechanism_has_its_largest_shares() -> None:
    lines = [
        ("mst", "persons of 1", "", "9", "9", "100%", "99.5%", "67%"),
        ("mst", "persons of 2", "", "9", "9", "88%", "100.0%", "200%"),
        ("itemsets", "persons of 2", "", "9", "9", "100%", "83.0%", ""),
    ]
    assert referee_table.summarize_by_mechanism(lines) == [
        ("mst", "2", "100%", "100.0%", "200%"),
        ("itemsets", "1", "100%", "83.0%", ""),
    ]


def test_the_checks_of_dp_recorder_are_one_cell() -> None:
    line = ("half", "found: 4.0 times", "not seen", "found", "not seen", "not seen", "found: 1.7 times mu")
    assert recorder_table.join_checks(line) == ("half", "4.0 times", "not seen", "replay, samples 1.7 times mu")
    assert recorder_table.join_checks(("none", *["not seen"] * 6))[-1] == "not seen"


def test_all_scales_are_one_line_with_the_worst_of_each() -> None:
    lines = [
        ("0.3", "1,000", "3", "0.247", "1e-05", "0.75%", "not rejected"),
        ("10", "1,000", "9", "0.060", "1e-05", "0.44%", "not rejected"),
    ]
    expected = ("0.3 to 10", "1,000", "0.060", "1e-05", "0.44% to 0.75%")
    assert goodness_of_fit.summarize_scales(lines) == expected


def test_a_channel_has_one_line_for_all_tables() -> None:
    lines = [
        ("seconds", "a neighbour", "1", "2", "53%", "0.78", "no"),
        ("seconds", "10 times the rows", "1", "2", "54%", "0.69", "no"),
        ("refusals", "all", "0", "0 of 64", "", "", "no"),
    ]
    assert side_channels.list_by_channel(lines) == [("seconds", "53% (p = 0.78)", "54% (p = 0.69)")]


def test_a_release_has_one_line_for_all_claims() -> None:
    lines = [
        ("1", "the release", "2 x 5", "0.75 (all)", "0.75", "0.65 (all)", "within the claim"),
        ("1", "half the noise", "2 x 5", "1.82 (all)", "0.75", "1.25 (all)", "fault found"),
        ("4", "the release", "2 x 5", "2.68 (all)", "1.83", "1.64 (all)", "within the claim"),
        ("4", "half the noise", "2 x 5", "3.62 (all)", "1.83", "3.14 (all)", "fault found (mu only)"),
    ]
    header, rows = table.list_by_release(lines)
    assert header == ("at least", "epsilon 1, mu 0.75", "epsilon 4, mu 1.83")
    assert rows == [("the release", "0.75, 0.65", "2.68, 1.64"), ("half the noise", "1.82, 1.25", "3.62, 3.14")]


def test_a_page_shows_some_columns() -> None:
    assert table.choose_columns((0, 2), "abc", ["123", "456"]) == (("a", "c"), [("1", "3"), ("4", "6")])
