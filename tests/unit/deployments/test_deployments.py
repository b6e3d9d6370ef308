"""deployments/prefect.yaml against the flow that it deploys, and its schedules and presets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prefect.flows import load_flow_from_entrypoint
from prefect.utilities.importtools import import_object
from ruamel.yaml import YAML

from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.flows.deploy import read_spec
from privsyn.specs.spec_file import load_spec
from tests.support.places import ROOT
from tests.support.user_folder import write_modules_of_common_names

DEPLOYMENTS = YAML(typ="safe").load((ROOT / "deployments" / "prefect.yaml").read_text(encoding="utf-8"))["deployments"]

FLOWS = {
    "privsyn.flows.release.release": "release",
    "privsyn.flows.evaluate.evaluate": "evaluate",
    "privsyn.flows.compare.compare": "compare",
    "privsyn.flows.budget.budget_report": "budget-report",
    "privsyn.flows.schedule.scheduled_release": "scheduled-release",
}

each = pytest.mark.parametrize(
    "deployment", DEPLOYMENTS, ids=[f"{FLOWS[d['entrypoint']]}/{d['name']}" for d in DEPLOYMENTS]
)


@each
def test_its_entrypoint_is_the_flow_and_its_parameters_are_the_flow_s(
    deployment: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loaded as a worker loads it, in a folder that has modules of the same names."""
    write_modules_of_common_names(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    flow = load_flow_from_entrypoint(deployment["entrypoint"])
    assert flow.name == FLOWS[deployment["entrypoint"]]
    assert set(deployment.get("parameters", {})) <= set(flow.parameters.properties)
    assert deployment["work_pool"]["name"] == "privsyn"


@each
def test_its_build_steps_give_a_spec_that_the_flow_accepts(
    deployment: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `prefect deploy` does it: run the steps, then put their outputs in the place of ``{{ id.name }}``."""
    monkeypatch.chdir(ROOT)
    outputs = {}
    for step in deployment.get("build", []):
        ((name, arguments),) = step.items()
        own = {k: v for k, v in arguments.items() if k != "id"}
        outputs |= {f"{{{{ {arguments['id']}.{k} }}}}": v for k, v in import_object(name)(**own).items()}
    given = {name: value for name, value in deployment.get("parameters", {}).items() if name == "spec"}
    parameters = {name: outputs[value] for name, value in given.items()}
    assert list(outputs.values()) == list(parameters.values())
    for spec in parameters.values():
        assert ReleaseSpec.model_validate(spec) == load_spec(ROOT / "examples" / "gss.yaml")


def test_no_schedule_is_on_by_itself() -> None:
    schedules = [s for d in DEPLOYMENTS for s in d.get("schedules", [])]
    assert schedules
    assert all(s["active"] is False for s in schedules)


def test_a_form_without_defaults_means_the_same_spec() -> None:
    content = read_spec(str(ROOT / "examples" / "gss.yaml"))["spec"]
    assert "synthesis" not in content
    assert Path(content["data"]).is_absolute()
