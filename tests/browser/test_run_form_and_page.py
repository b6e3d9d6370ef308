"""A release from Prefect's UI in a real browser: fill in the form, be refused, run, watch, run again, read it all."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from privsyn.data_contracts.mechanism_options import Independent, Rows, Split
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.pipelines.one_shot import STEPS
from privsyn.pipelines.registry import MECHANISMS
from tests.browser.conftest import MOST_EPSILON, Place
from tests.support.prefect_ui import Page, eventually

pytestmark = [pytest.mark.browser, pytest.mark.slow]
EPSILON = ("spec", "Privacy", "Epsilon")
NAME = ("spec", "Mechanism", "Name")
GAMMA = ("spec", "Mechanism", "Selection", "Gamma")


def submitted(place: Place, page: Page, fill: Callable[[], None]) -> dict[str, Any]:
    """The run that the form starts once ``fill`` has filled it in."""
    before = {run["id"] for run in place.server.runs()}

    def new() -> Any:
        return next((run for run in place.server.runs() if run["id"] not in before), None)

    def started() -> Any:
        """The form may be drawn anew while it is written into, when a refusal comes: then once more."""
        if new() is None:
            fill()
            page.submit()
        with suppress(AssertionError):
            return eventually(new, "the run", patience=10)
        return None

    return dict(eventually(started, "the run"))


@pytest.fixture(scope="module")
def first(place: Place, page: Page) -> str:
    """The flow run that the form started, after a wrong epsilon was refused; its end."""
    page.open(f"/deployments/deployment/{place.deployment}/run")
    page.write("0", *EPSILON)
    page.submit()
    eventually(lambda: "0 is less than or equal to the minimum of 0" in page.field(*EPSILON).text, "the refusal")
    assert place.server.runs() == []

    run = submitted(place, page, lambda: page.write("2", *EPSILON))
    assert run["parameters"]["spec"]["privacy"]["epsilon"] == 2
    assert place.server.ended(run["id"]) == "Completed"
    return str(run["id"])


def start(place: Place, **changes: Any) -> str:
    """Start the deployment as the form did, but for these fields of the spec."""
    spec = place.server.runs()[0]["parameters"]["spec"]
    content = {"parameters": {"spec": {**spec, **changes}}, "state": {"type": "SCHEDULED"}}
    return str(place.server.ask(f"/deployments/{place.deployment}/create_flow_run", content)["id"])


def from_form_independent(place: Place, page: Page) -> str:
    """A run of the mechanism `independent`, chosen in the form, that costs more than is left."""
    page.open(f"/deployments/deployment/{place.deployment}/run")

    def filled() -> None:
        page.write("11", *EPSILON)
        page.choose("independent", *NAME)

    run = submitted(place, page, filled)
    spec = run["parameters"]["spec"]
    assert spec["mechanism"] == {"name": "independent", "synthesis": {"seed": 7}}
    assert ReleaseSpec.model_validate(spec).mechanism == Independent(synthesis=Rows(seed=7))
    return str(run["id"])


def test_the_form_shows_fields_with_descriptions_limits_choices_and_defaults(place: Place, page: Page) -> None:
    page.open(f"/deployments/deployment/{place.deployment}/run")
    assert "above 10 it protects little. More than 0 and at most 1,000,000." in page.field(*EPSILON).text
    assert "From 1 to 10,000,000. Empty: 5000." in page.field(*GAMMA).text
    assert page.choices("spec", "Preset") == ["0.4", "0.3", "paper"]
    assert page.choices("spec", "Accountant") == ["gaussian", "tight", "paper"]
    assert page.choices(*NAME) == list(MECHANISMS)
    assert page.choices("spec", "Mechanism", "Split", "Remeasure One Ways") == ["true", "false"]
    one_way = page.field("spec", "Mechanism", "Split", "One Way").text
    assert f"Empty: {Split().one_way}; with the preset paper, 0.1." in one_way
    assert "adaptive and aim: Rounds after the first measurement." in page.field("spec", "Mechanism", "Rounds").text
    columns = page.field("spec", "Columns").find_element("css selector", "textarea").get_attribute("value")
    assert '"kind": "categorical"' in str(columns)
    filled = {**dict.fromkeys(["One Way", "Gamma", "Rounds", "Method"], ""), "Seed": "7", "Name": "privsyn"}
    within = {"One Way": ["Split"], "Gamma": ["Selection"], "Method": ["Synthesis"], "Seed": ["Synthesis"]}
    shown = {field: page.shown("spec", "Mechanism", *within.get(field, []), field) for field in filled}
    assert shown == filled  # what the deployment says stands there, and no default
    assert (page.shown("spec", "Accountant"), page.shown("spec", "Preset")) == ("", "0.4")
    page.photograph(place.folder / "form.png")
    page.write("0", *GAMMA)
    page.submit()
    eventually(lambda: "0 is less than the minimum of 1" in page.field(*GAMMA).text, "the refusal")


def test_an_empty_form_says_beside_its_button_what_is_missing(place: Place, page: Page) -> None:
    flow = place.server.ask(f"/deployments/{place.deployment}")["flow_id"]
    empty = place.server.ask(
        "/deployments/",
        {"name": "empty", "flow_id": flow, "work_pool_name": "privsyn"}
        | {
            field: place.server.ask(f"/deployments/{place.deployment}")[field]
            for field in ("entrypoint", "parameter_openapi_schema")
        },
    )["id"]
    page.open(f"/deployments/deployment/{empty}/run")
    page.field("spec", "Dataset")
    assert "one household with all its members: household_id" in page.field("spec", "Unit").text
    page.submit()
    page.says("Missing: Dataset, Unit, Privacy, Budget, Columns")
    page.photograph(place.folder / "empty-form.png")


def test_what_nobody_chose_in_the_form_is_left_to_the_preset(place: Place, first: str) -> None:
    spec = place.server.ask(f"/flow_runs/{first}")["parameters"]["spec"]
    assert "accountant" not in spec
    assert spec["mechanism"] == {"name": "privsyn", "synthesis": {"seed": 7}}
    assert ReleaseSpec.model_validate(spec) == place.requested(privacy={"epsilon": 2, "delta": 1e-9})


def test_the_run_page_names_every_step_with_its_kind(page: Page, first: str) -> None:
    page.open(f"/runs/flow-run/{first}")
    page.tab("Task Runs")
    text = page.says(*(step.label for step in STEPS), "Publish", "Completed")
    assert "Cached\n" not in text.split("Oldest to Newest")[-1]


def test_the_artifacts_are_the_certificate_the_budget_the_note_the_files_and_the_picture(
    place: Place, page: Page, first: str
) -> None:
    asked = {"artifacts": {"flow_run_id": {"any_": [first]}}}
    artifacts = {a["key"]: a["id"] for a in place.server.ask("/artifacts/filter", asked)}
    words = {
        "certificate": ("What is promised", "(2, 1e-09)-differential privacy", "Why it holds"),
        "budget": ("% used; ", "this release", "left", "lifetime cap"),
        "release-note": ("No row belongs to a person", "How good is it?"),
        "files": ("synthetic.parquet", "certificate.json", "Private: keep"),
        "overview": ("Noise and synthesis in one picture, from released tables only: people-",),
    }
    page.open(f"/runs/flow-run/{first}")
    page.tab("Artifacts")
    page.says(*(f"{k}-people" for k in (*words, "columns", "private-report")))
    for key, expected in words.items():
        page.open(f"/artifacts/artifact/{artifacts[f'{key}-people']}")
        page.says(*expected)
        if key in ("budget", "overview"):
            assert min(eventually(page.drawn, "the picture")) > 300
        page.photograph(place.folder / f"{key}.png")


def test_what_the_operators_policy_does_not_allow_is_refused_in_one_line(place: Place, page: Page, first: str) -> None:
    """The form takes the epsilon, which is a lawful one; the worker refuses it, before the table is opened."""
    page.open(f"/deployments/deployment/{place.deployment}/run")
    asked = MOST_EPSILON + 1
    run = submitted(place, page, lambda: page.write(str(asked), *EPSILON))
    assert run["parameters"]["spec"]["privacy"]["epsilon"] == asked
    assert place.server.ended(run["id"]) == "Failed"
    message = place.server.ask(f"/flow_runs/{run['id']}")["state"]["message"]
    rule = f"is {asked}, and the policy's datasets.people.epsilon allows at most {MOST_EPSILON}"
    assert message.startswith(f"privacy.epsilon: {rule}") and "\n" not in message
    assert "nothing was read, nothing was spent" in message
    page.open(f"/runs/flow-run/{run['id']}")
    page.says("Failed")
    page.tab("Details")
    page.says("State Message", f"is {asked}, and the policy")  # the page cuts it
    page.photograph(place.folder / "policy.png")
    page.tab("Logs")
    assert "Traceback" not in page.says(f"is {asked}, and the policy")
    kept = {entry["run"] for entry in place.ledger()}
    assert len(kept) == 1  # the first release's


def test_the_same_run_again_is_cached_and_one_beyond_the_cap_is_refused(place: Place, page: Page, first: str) -> None:
    again = start(place)
    refused = from_form_independent(place, page)
    assert place.server.ended(again) == "Completed"
    page.open(f"/runs/flow-run/{again}")
    page.tab("Task Runs")
    page.says(f"({len(STEPS) + 1} Completed)")
    asked = {"flow_runs": {"id": {"any_": [again]}}}
    states = {t["name"]: t["state_name"] for t in place.server.ask("/task_runs/filter", asked)}
    assert states.pop("Publish") == "Completed" and set(states.values()) == {"Cached"}
    assert page.text().count("Cached") >= len(STEPS)
    assert place.server.ended(refused) == "Refused"
    page.open(f"/runs/flow-run/{refused}")
    page.says("Refused")
    page.tab("Details")
    page.says("State Message", "does not allow this")  # the page cuts it; the artifact has all of it
    asked = {"artifacts": {"flow_run_id": {"any_": [refused]}}}
    (budget,) = place.server.ask("/artifacts/filter", asked)
    page.open(f"/artifacts/artifact/{budget['id']}")
    page.says("Budget of people", "Refused.", "still fits", "% used")
    page.photograph(place.folder / "refused.png")


def test_the_page_calls_nobody_but_its_own_server(place: Place, page: Page, first: str) -> None:
    """Requests that the page's policy stops never leave the browser."""
    page.driver.get_log("performance")
    for path in ("/dashboard", f"/runs/flow-run/{first}", "/deployments"):
        page.open(path)
        time.sleep(3)
    page.driver.execute_script("fetch('https://stranger.example/').catch(() => 0)")  # as a page that calls others would
    time.sleep(1)
    events = [json.loads(entry["message"])["message"] for entry in page.driver.get_log("performance")]
    sent = {
        e["params"]["requestId"]: e["params"]["request"]["url"]
        for e in events
        if e["method"] == "Network.requestWillBeSent"
    }
    stopped = {
        e["params"]["requestId"]
        for e in events
        if e["method"] == "Network.loadingFailed" and e["params"].get("blockedReason") == "csp"
    }
    own = (page.server.page, "data:", "blob:")
    assert any(url.startswith(f"{page.server.page}/api/") for url in sent.values())
    assert [url for request, url in sent.items() if request not in stopped and not url.startswith(own)] == []
