"""The generated tables of the comparison with the peers: means, reasons and leads by hand."""

from __future__ import annotations

from typing import Any

from benchmarks.compare import STORE
from benchmarks.compare_page import BEGIN, END, PAGE, PAIRS, SVM, Runs, faster, front, lead, list_pairs, page
from benchmarks.compare_store import Run, Store


def run(method: str, l1: float | None = None, **changes: Any) -> Run:
    content: dict[str, Any] = {
        "method": method, "version": "1", "table": "t", "epsilon": 1.0, "seed": 0, "outcome": "done",
        "figures": {} if l1 is None else {"l1_2way": l1}, "machine": "2 cores",
    }  # fmt: skip
    return Run(**{**content, **changes})


def test_pairs_have_the_mean_of_the_seeds_and_what_a_limit_stopped() -> None:
    runs = [
        run("default", 0.1),
        run("default", 0.3, seed=1),
        run("default", seed=2, outcome="failed"),
        run("mst-dpmm", 0.4),
        run("aim-dpmm", outcome="time"),
    ]
    head, _, line = list_pairs(Runs(runs))
    assert head == "| table | epsilon | PrivSyn Flows | AIM (dpmm) | MST (dpmm) |"
    assert line == "| t | 1 | **0.200** | stopped | 0.400 |"


def test_the_lead_is_over_the_best_other_method() -> None:
    runs = Runs([run("default", 0.3), run("mst-dpmm", 0.4), run("privsyn-core", 0.9)])
    assert lead(runs, "t", 1.0, PAIRS) == "+25% on MST (dpmm)"
    assert lead(runs, "t", 1.0, SVM) == ""
    behind = Runs([run("default", 0.5), run("mst-dpmm", 0.4)])
    assert lead(behind, "t", 1.0, PAIRS) == "-25% on MST (dpmm)"
    far_behind = Runs([run("default", 0.5), run("mst-dpmm", 0.1)])
    assert lead(far_behind, "t", 1.0, PAIRS) == "0.5000 against 0.1000, MST (dpmm)"


def test_faster_than_the_fastest_aim_in_cpu_seconds() -> None:
    ours, aim = run("default", 0.3, cpu=0.5), run("aim-dpmm", 0.4, cpu=100.0)
    assert faster(Runs([ours, aim]), "t", 1.0) == "200×"
    assert faster(Runs([ours, run("aim-dpmm", outcome="time")]), "t", 1.0) == "over 2,400×"
    assert faster(Runs([ours, run("aim-80-dpmm", outcome="time")]), "t", 1.0) == "over 14,400×"
    assert faster(Runs([ours]), "t", 1.0) == ""


def test_the_verdicts_say_where_the_default_is_behind() -> None:
    """Pairs 0.1 against 0.2: half.  SVM 0.3 against 0.25: 20 % behind; 0.3 against 0.1: the figures themselves."""
    ours = run("default", figures={"l1_2way": 0.1, "svm": 0.3}, cpu=2.0)
    aim = run("aim-dpmm", figures={"l1_2way": 0.2, "svm": 0.25}, cpu=8.0)
    assert front(Runs([ours, aim]))[2] == "| t | +50% | **-20%** | 2 to 2 | 4× |"
    far = run("aim-dpmm", figures={"l1_2way": 0.2, "svm": 0.1}, cpu=8.0)
    assert front(Runs([ours, far]))[2] == "| t | +50% | **0.3000 against 0.1000** | 2 to 2 | 4× |"


def test_the_page_says_what_the_kept_runs_say() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
    written = text.split(BEGIN)[1].split(END)[0].strip("\n").splitlines()
    assert written == page(Runs(Store(STORE).runs.values())), "run: python -m benchmarks.compare --only page"
