"""The private report as text: private notice, no network, everything escaped, all figures there, small enough."""

from __future__ import annotations

import json
import re
from html import unescape
from html.parser import HTMLParser

import pytest

from privsyn.data_contracts.evaluation import (
    AnalysisFigure,
    AnalysisResult,
    ColumnStatistics,
    Evaluation,
    MisreadColumn,
    OneWay,
    Statistic,
)
from privsyn.evaluation.report import charts
from privsyn.evaluation.report.page import (
    NOMINAL_BINS,
    build_meter,
    build_one_way_table,
    build_tables,
    group_metrics,
    render,
)
from tests.support.evaluations import make_evaluation

EVIL = "</script><b>\"'&\\ \u2028<!--"


class Page(HTMLParser):
    """Tags with their attributes, text outside scripts and styles, and the scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text, self.scripts, self._inside = "", [], ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.text += data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


@pytest.fixture(scope="module")
def wide() -> str:
    return render(make_evaluation(22, against=2))


def changed(evaluation: Evaluation, **changes: object) -> Evaluation:
    return Evaluation.model_validate({**evaluation.model_dump(), **changes})


def one_way(real: tuple[float, ...], *, ordered: bool, sd: tuple[float, ...] | None = None) -> OneWay:
    labels = tuple(f"v{i}" for i in range(len(real)))
    return OneWay(
        column="a", ordered=ordered, labels=labels, real=real, synthetic=real, noise_sd=sd, l1=0.0, noise_l1=None
    )


def test_it_says_first_that_it_is_private(wide: str) -> None:
    text = Page(wide).text
    assert text.index("PRIVATE. Do not release this page.") < text.index("How good is the synthetic table?")
    assert "<title>PRIVATE: people" in wide


def test_nothing_is_loaded_from_anywhere(wide: str) -> None:
    page = Page(wide)
    outside = {"link", "img", "iframe", "object", "embed", "source", "audio", "video", "form", "base"}
    assert not outside & {tag for tag, _ in page.tags}
    assert all("src" not in attributes for _, attributes in page.tags)
    assert {a["href"] for tag, a in page.tags if tag == "a"} <= {f"#{a['id']}" for _, a in page.tags if "id" in a}
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy and "http" not in policy
    style = re.search("<style>(.*?)</style>", wide, re.DOTALL)
    assert style is not None and "url(" not in style[1] and "@import" not in style[1]


def test_every_figure_of_every_table_stands_in_the_page(wide: str) -> None:
    evaluation = make_evaluation(22, against=2)
    text = Page(wide).text
    for column in evaluation.columns:
        assert column in text
    for metric in evaluation.release.metrics:
        assert metric.title in text
    for table in evaluation.scores:
        assert table.table in text
    assert evaluation.notes[0] in text
    assert "range_queries" in text and "evaluation.json" in text
    assert "As close as a random sample of 12 % of the real rows." in text
    assert "Majority 0.412" in text


def test_names_from_the_spec_cannot_break_the_page() -> None:
    content = make_evaluation(3).model_dump_json().replace('"age"', json.dumps(EVIL)).replace("protestant", "<i>x</i>")
    content = content.replace('"people"', json.dumps(EVIL)).replace("No hold-out", "<u>No hold-out")
    evil = Evaluation.model_validate_json(content)
    page = Page(render(evil))
    plain = Page(render(make_evaluation(3)))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    assert len(page.scripts) == 3
    assert json.loads(page.scripts[0])["tables"]["diagonal"]["rows"][0][0] == EVIL
    assert EVIL in page.text
    assert page.scripts[1:] == plain.scripts[1:]


def test_size_of_pages_and_of_the_widest_table(wide: str) -> None:
    assert len(wide.encode()) < 3_000_000
    assert len(render(make_evaluation(97)).encode()) < 8_000_000


def test_misread_columns_and_statistics_stand_in_the_page_and_cannot_break_it() -> None:
    lost = MisreadColumn(column=EVIL, repairs={"null": 0.4}, words="of its values `40%`.", cures=(EVIL,), counted=True)
    mean = Statistic(name="mean", kind="value", real=3.5, synthetic=4.0, low=3.9, high=4.1)
    share = Statistic(name="share of 0", kind="share", real=0.368, synthetic=0.006, low=None, high=None)
    found = ColumnStatistics(column=EVIL, form="number", unit=EVIL, statistics=(mean, share))
    empty = ColumnStatistics(column="wage", form="moment", unit="", statistics=())
    evaluation = make_evaluation(3).model_copy(update={"misread": (lost,), "statistics": (found, empty)})
    html = render(evaluation)
    page = Page(html)
    assert page.text.index("likely misread") < page.text.index("How good is the synthetic table?")
    assert page.text.count(EVIL) == 5 and len(page.scripts) == 3
    assert "<code>40%</code>" in html and 'class="num beyond">3.5' in html
    assert "37 %" in page.text and "not known" in page.text and "no value of it" in page.text


def test_analyses_stand_in_the_page_and_cannot_break_it() -> None:
    far = AnalysisFigure(name=EVIL, real=2.0, std_error=0.1, synthetic=3.0, apart=10.0, close=False)
    none = AnalysisFigure(name="b", real=0.5, std_error=None, synthetic=None, apart=None, close=False)
    found = AnalysisResult(
        title=EVIL, kind="regression", rows_real=812, rows_synthetic=790, figures=(far, none), note="compared with x"
    )
    page = Page(render(make_evaluation(3).model_copy(update={"analyses": (found,)})))
    assert page.text.count(EVIL) == 2
    assert "812 real rows, 790 synthetic. Compared with x." in page.text
    assert page.count("section") == Page(render(make_evaluation(3))).count("section") + 1


def test_one_column_or_none_and_nothing_measured_still_make_a_page() -> None:
    one = render(make_evaluation(1))
    assert 'id="map"' not in one and 'id="relations"' not in one
    assert "There is only one column." in one
    bare = changed(make_evaluation(1), one_ways=(), pairs=(), sizes=(), stages=(), earth_mover=(), notes=())
    assert "There is no column to compare" in render(bare)


def test_meters_end_at_the_largest_value_where_there_is_no_bound() -> None:
    metric = make_evaluation(3).release.metrics[0]
    bounded = metric.model_copy(update={"value": 0.5, "low": 0.0, "high": 2.0, "references": {"half": 1.0}})
    assert build_meter(bounded) == {"low": 0.0, "high": 2.0, "value": 25.0, "references": {"half": 50.0}}
    open_end = metric.model_copy(update={"value": 4.0, "high": None, "references": {"random": 8.0}})
    assert build_meter(open_end)["value"] == 50.0 and build_meter(open_end)["high"] == 8.0
    nothing = metric.model_copy(update={"value": None, "high": None, "references": {}})
    assert build_meter(nothing) == {"low": 0.0, "high": 0.0, "value": None, "references": {}}
    beyond = metric.model_copy(update={"value": -3.0, "low": 0.0, "high": 2.0, "references": {"far": 9.0}})
    assert build_meter(beyond)["value"] == 0.0 and build_meter(beyond)["references"] == {"far": 100.0}


def test_a_card_without_a_value_says_why_and_has_no_best_end() -> None:
    evaluation = make_evaluation(3)
    pairs = evaluation.release.metrics[1].model_copy(
        update={"value": None, "subsample": None, "note": "needs two columns"}
    )
    release = evaluation.release.model_copy(update={"metrics": (pairs,)})
    html = render(changed(evaluation, scores=(release.model_dump(),)))
    card = html[html.index('<article class="card">') : html.index("</article>")]
    assert "Not computed: needs two columns." in card
    assert "(best)" not in card and "meter" not in card and "random sample" not in card


def test_shares_and_their_noise_are_drawn_within_0_and_100_percent() -> None:
    for spec in (charts.draw_ordered_one_way(), charts.draw_nominal_one_way()):
        steps = spec.get("transform", []) + [t for layer in spec["layer"] for t in layer.get("transform", [])]
        band = {t["as"]: t["calculate"] for t in steps}
        assert band["low"].startswith("max(0, ") and band["high"].startswith("min(1, ")
        assert "drawn up to 100%" in band["cut"]
    assert "drawn from 0 to 100 %" in render(make_evaluation(3))


def test_metrics_of_tables_are_matched_by_name() -> None:
    evaluation = make_evaluation(3, against=1)
    release, other = evaluation.scores
    kept = [m for m in release.metrics if m.name != "l1_2way"]
    fewer = release.model_copy(update={"metrics": tuple(kept)})
    groups = group_metrics(evaluation.model_copy(update={"scores": (fewer, other)}))
    rows = {m.name: values for _, rows in groups for m, values in rows}
    assert rows["l1_2way"] == [None, other.metrics[1]]
    assert rows["k_marginal"] == [release.metrics[2], other.metrics[2]]
    assert set(rows) == {m.name for m in release.metrics}


def test_long_columns_are_drawn_in_fewer_bins_that_keep_all_rows() -> None:
    ordered = build_one_way_table(one_way((1 / 600,) * 600, ordered=True, sd=(0.1,) * 600))
    assert len(ordered["rows"]) == 60
    assert sum(row[1] for row in ordered["rows"]) == pytest.approx(1, abs=1e-3)
    assert ordered["rows"][0] == ["v0 … v9", 0.01667, 0.01667, round(0.1 * 10**0.5, 5)]
    nominal = build_one_way_table(one_way((0.0,) * 99 + (1.0,), ordered=False))
    assert len(nominal["rows"]) == NOMINAL_BINS
    assert nominal["rows"][-2:] == [["v99", 1.0, 1.0, None], ["81 others", 0.0, 0.0, None]]


def test_bins_of_one_name_stay_apart() -> None:
    double = one_way((0.5, 0.5), ordered=False).model_copy(update={"labels": ("x", "x")})
    assert [row[0] for row in build_one_way_table(double)["rows"]] == ["x", "x (2)"]


def test_pairs_are_embedded_once_worst_first() -> None:
    evaluation = make_evaluation(22)
    pairs = build_tables(evaluation)["pairs"]
    l1, lost = ([row[pairs["fields"].index(name)] for row in pairs["rows"]] for name in ("l1", "difference"))
    worst = [round(max(a / 2, abs(b or 0)), 4) for a, b in zip(l1, lost, strict=True)]
    assert len(l1) == 231 and worst == sorted(worst, reverse=True)
    html = unescape(render(evaluation))
    assert html.count(f'"{pairs["rows"][200][0]}", "{pairs["rows"][200][1]}", {pairs["rows"][200][2]}') == 1
