"""The page of labels: a cell has the mean of both machines and the spread of seeds, or says that a run did not end."""

from __future__ import annotations

from benchmarks.labels import SHOWN, list_lines


def test_a_row_has_means_with_their_spread_what_did_not_finish_and_what_was_not_run() -> None:
    found = [
        {"of": ["OFP", 1.0, "privsyn", 0], "svm": 0.2, "trees": 0.4},
        {"of": ["OFP", 1.0, "privsyn", 1], "svm": 0.3, "trees": 0.5},
        {"of": ["OFP", 1.0, "aim-dpmm", 0], "detail": "TimeoutError: 1,200 s"},
        {"of": ["OFP", 1.0, "tab-pe", 0], "detail": "PeerError: ValueError: probabilities contain NaN"},
        {"of": ["SLID", 1.0, "real", 0], "svm": 0.1, "trees": 0.1},
    ]
    head, _, *rows = list_lines(found)
    names = [cell.strip() for cell in head.split("|")[1:-1]]
    cells = [dict(zip(names, (c.strip() for c in row.split("|")[1:-1]), strict=True)) for row in rows]
    assert [row["table"] for row in cells] == ["SLID", "OFP"]
    assert cells[1][SHOWN["privsyn"]] == "0.350 ±0.071"
    assert cells[1][SHOWN["aim-dpmm"]] == "did not finish" and not cells[1][SHOWN["mst-dpmm"]]
    assert cells[1][SHOWN["tab-pe"]] == "failed"
    assert cells[0][SHOWN["real"]] == "0.100"
