"""prefect.yaml against the flows that it deploys, and the systemd units: they start our commands, and stop in time."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prefect.flows import load_flow_from_entrypoint
from prefect.utilities.importtools import import_object
from ruamel.yaml import YAML
from typer.testing import CliRunner

from privsyn.cli import app
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.flows.deploy import read_spec
from privsyn.server.server_and_worker import STOP_SECONDS
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


UNITS = {"privsyn-server.service": "server", "privsyn-worker.service": "worker"}


def entries(name: str) -> dict[str, str]:
    """``Section.Key`` -> value; a key has one line in these files, but for Environment's kind."""
    found, section = {}, ""
    for line in (ROOT / "deployments" / name).read_text(encoding="utf-8").splitlines():
        if match := re.fullmatch(r"\[(\w+)\]", line):
            section = match[1]
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            assert f"{section}.{key}" not in found
            found[f"{section}.{key}"] = value
    return found


@pytest.mark.parametrize(("name", "command"), UNITS.items())
def test_it_starts_one_of_our_commands_again_and_again(name: str, command: str) -> None:
    unit = entries(name)
    program, *arguments = unit["Service.ExecStart"].split()
    assert program.endswith("/.venv/bin/privsyn") and arguments == [command]
    assert CliRunner().invoke(app, [*arguments, "--help"]).exit_code == 0
    assert unit["Service.Restart"] == "always"


@pytest.mark.parametrize("name", UNITS)
def test_it_is_stopped_as_ctrl_c_does_it_and_has_the_time(name: str) -> None:
    unit = entries(name)
    assert (unit["Service.KillMode"], unit["Service.KillSignal"]) == ("mixed", "SIGTERM")
    assert int(unit["Service.TimeoutStopSec"]) > 4 * STOP_SECONDS  # two programs, and what each runs


@pytest.mark.parametrize("name", UNITS)
def test_it_runs_as_a_user_who_can_do_little_and_whose_files_nobody_else_reads(name: str) -> None:
    unit = entries(name)
    assert unit["Service.User"] not in ("", "root")
    assert (unit["Service.UMask"], unit["Service.StateDirectoryMode"]) == ("0077", "0700")
    assert unit["Service.NoNewPrivileges"] == "true"
    assert not re.search(r"://[^/@]*:[^/@]*@|AUTH_STRING", str(unit))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze: Debian's package systemd")
def test_systemd_takes_them_without_a_warning(tmp_path: Path) -> None:
    """Both, since one names the other; with a program that is there in place of the installed one."""
    for name in UNITS:
        text = (ROOT / "deployments" / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", text), encoding="utf-8")

    def verified() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["systemd-analyze", "verify", "--man=no", *map(str, sorted(tmp_path.iterdir()))],
            capture_output=True,
            text=True,
            check=False,
        )

    done = verified()
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    wrong = tmp_path / "privsyn-worker.service"
    wrong.write_text(wrong.read_text(encoding="utf-8").replace("KillMode=mixed", "KillMode=often"), encoding="utf-8")
    assert "Failed to parse kill mode" in verified().stderr
