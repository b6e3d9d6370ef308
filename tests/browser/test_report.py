"""The private report in a real browser: headless Chromium, offline, light, dark and on paper."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.support.ui import WebDriverWait

from privsyn.evaluation.report.page import list_worst_pairs, render
from tests.support.evaluations import make_evaluation

pytestmark = pytest.mark.browser
EVIL = "</script><b>\"'& x"


def opened(browser: Any, html: str, folder: Path) -> list[str]:
    """Open the page from a file, wait until every chart is drawn; the addresses that were asked for."""
    file = folder / "report.html"
    file.write_text(html, encoding="utf-8")
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get_log("performance")
    media(browser, scheme="light")
    browser.get(file.as_uri())
    WebDriverWait(browser, 120).until(lambda b: b.execute_script("return document.documentElement.dataset.drawn"))
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]


def media(browser: Any, *, scheme: str = "light", kind: str = "") -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": kind, "features": features})


@pytest.fixture(scope="module")
def page(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("report")
    browser.requested = opened(browser, render(make_evaluation(22, against=1)), folder)
    browser.console = browser.get_log("browser")
    return browser


def test_it_opens_without_network_and_without_a_word_on_the_console(page: Any) -> None:
    assert len(page.requested) == 1 and page.requested[0].startswith("file://")
    assert page.console == []
    # Every chart is drawn.
    empty = page.execute_script(
        "return [...document.querySelectorAll('.chart')].filter(c => !c.querySelector('svg .role-mark path, "
        "svg .role-mark line')).map(c => c.dataset.spec + ' ' + c.dataset.table)"
    )
    assert empty == []
    # 22 columns, the map of errors, three maps of associations, sizes and stages
    assert page.execute_script("return document.querySelectorAll('.chart svg').length") == 22 + 1 + 3 + 2
    cells = "return document.querySelectorAll('[data-spec=heat] .mark-rect.role-mark path').length"
    assert page.execute_script(cells) == 22 * 21 / 2 + 22


def test_the_heat_map_tells_a_cell_s_figures(page: Any) -> None:
    worst = max(make_evaluation(22).pairs, key=lambda p: p.l1)
    cell = page.execute_script(
        "return [...document.querySelectorAll('[data-spec=heat] .mark-rect.role-mark path')]"
        ".find(p => p.__data__.datum.a === arguments[0] && p.__data__.datum.b === arguments[1])",
        worst.a,
        worst.b,
    )
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", cell)
    ActionChains(page).move_to_element(cell).perform()
    WebDriverWait(page, 10).until(lambda b: b.find_element("id", "vg-tooltip-element").is_displayed())
    text = page.find_element("id", "vg-tooltip-element").text
    for figure in (worst.a, worst.b, f"{worst.l1:.4f}", f"{worst.cells:,}", worst.cause):
        assert figure in text


def luminance(colour: str) -> float:
    """Relative luminance of ``rgb(r, g, b)`` as WCAG 2 defines it, 0..1."""
    parts = [int(float(p)) / 255 for p in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


TEXTS = """
const of = (e) => getComputedStyle(e);
const back = (e) => { while (e && of(e).backgroundColor === "rgba(0, 0, 0, 0)") e = e.parentElement;
                      return of(e).backgroundColor; };
const names = "h1,h2,h3,p,small,td,th,.cause,a,summary,button,figcaption,.private,footer";
const html = [...document.querySelectorAll(names)];
const svg = [...document.querySelectorAll(".chart svg text")];
return [...html.filter(e => e.offsetParent).map(e => [of(e).color, back(e), e.tagName + e.className]),
        ...svg.map(e => [of(e).fill, back(e.closest(".chart")), "text " + e.textContent])];
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(page: Any, scheme: str) -> None:
    media(page, scheme=scheme)
    texts = page.execute_script(TEXTS)
    assert sum(what.startswith("text ") for _, _, what in texts) > 100
    assert [t for t in texts if contrast(t[0], t[1]) < 4.5] == []


def test_dark_pages_are_dark_and_the_button_turns_them_over(page: Any) -> None:
    background = "return getComputedStyle(document.body).backgroundColor"
    media(page, scheme="light")
    assert luminance(page.execute_script(background)) > 0.9
    media(page, scheme="dark")
    assert luminance(page.execute_script(background)) < 0.05
    page.execute_script("document.getElementById('theme').click()")
    assert luminance(page.execute_script(background)) > 0.9
    page.execute_script("document.getElementById('theme').click()")
    assert luminance(page.execute_script(background)) < 0.05
    media(page, scheme="dark", kind="print")
    assert luminance(page.execute_script(background)) > 0.9
    page.execute_script("delete document.documentElement.dataset.theme")


def test_it_prints(page: Any) -> None:
    media(page, scheme="dark", kind="print")
    hidden = "return [...document.querySelectorAll('button, nav')].map(e => getComputedStyle(e).display)"
    assert set(page.execute_script(hidden)) == {"none"}
    pdf = base64.b64decode(page.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    media(page)
    assert pdf.startswith(b"%PDF-")
    assert pdf.count(b"/Type /Page\n") >= 7 or pdf.count(b"/Type /Page ") + pdf.count(b"/Type /Page/") >= 7


def test_the_other_pairs_are_filled_in_when_asked_for(page: Any) -> None:
    page.execute_script("document.getElementById('more-pairs').open = true")
    rows = "return document.querySelectorAll('#more-pairs tbody tr').length"
    WebDriverWait(page, 10).until(lambda b: b.execute_script(rows))
    assert page.execute_script(rows) == 231 - 15
    first = page.execute_script("return [...document.querySelector('#more-pairs tr').cells].map(c => c.textContent)")
    sixteenth = list_worst_pairs(make_evaluation(22))[15]
    assert first[:2] == [sixteenth.a, sixteenth.b]
    page.execute_script("document.getElementById('more-pairs').open = false")


@pytest.mark.parametrize("width", [390, 1280])
def test_only_charts_and_tables_scroll_sideways(page: Any, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        assert page.execute_script("return document.documentElement.scrollWidth") <= width
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("columns", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 97))])
def test_narrow_and_wide_tables(browser: Any, tmp_path: Path, columns: int) -> None:
    assert len(opened(browser, render(make_evaluation(columns)), tmp_path)) == 1
    assert browser.get_log("browser") == []
    charts = columns + 2 + (4 if columns > 1 else 0)
    assert browser.execute_script("return document.querySelectorAll('.chart svg').length") == charts


def test_evil_names_are_shown_as_they_are(browser: Any, tmp_path: Path) -> None:
    evil = type(make_evaluation(3)).model_validate_json(
        make_evaluation(3).model_dump_json().replace('"age"', json.dumps(EVIL))
    )
    opened(browser, render(evil), tmp_path)
    assert browser.get_log("browser") == []
    assert EVIL in browser.find_element("id", "worst").text
    assert browser.execute_script("return [...document.querySelectorAll('svg text')].map(t => t.textContent)").count(
        EVIL
    )
