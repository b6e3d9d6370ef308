"""The container and compose files, as text: linted, and everything that they name exists in the project."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import check_jsonschema
import click.testing
import prefect
import pytest
from prefect.settings.models.root import Settings as PrefectSettings
from pydantic import AliasChoices, BaseModel
from ruamel.yaml import YAML, SafeConstructor
from typer.testing import CliRunner

from privsyn.base.settings import PREFIX, Settings
from privsyn.cli import app
from privsyn.server.alerts import VARIABLE
from tests.support.places import ROOT

CONTAINERFILE = ROOT / "deployments" / "Containerfile"
COMPOSE = ROOT / "deployments" / "compose.yaml"
TEXT = CONTAINERFILE.read_text(encoding="utf-8")
SERVICES: dict[str, Any] = YAML(typ="safe").load(COMPOSE.read_text(encoding="utf-8"))
BIN = Path(sys.executable).parent

OTHERS = {
    "PIP_DISABLE_PIP_VERSION_CHECK",
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
    "DO_NOT_TRACK",
    "NUMBA_CACHE_DIR",
    "POSTGRES_USER",
    "POSTGRES_DB",
    "POSTGRES_PASSWORD_FILE",
}
"""Variables that other programs read."""

OURS = {PREFIX + name.upper() for name in Settings.model_fields} | {VARIABLE, "PRIVSYN_PORT", "PRIVSYN_DATA"}
"""What the project reads, and the two that compose itself replaces."""


def prefect_variables(model: type[BaseModel] = PrefectSettings, prefix: str = "prefect") -> set[str]:
    """Every variable that Prefect reads."""
    found = set()
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found |= prefect_variables(kind, f"{prefix}_{name}")
        aliases = field.validation_alias
        names = [a for a in aliases.choices if isinstance(a, str)] if isinstance(aliases, AliasChoices) else []
        found |= {f"{prefix}_{name}".upper(), *(a.upper() for a in names)}
    return found


def variables() -> set[str]:
    """Every variable that one of the files sets or replaces."""
    block = re.search(r"^ENV (.*?[^\\])\n", TEXT, re.S | re.M)
    assert block is not None
    found = set(re.findall(r"(\w+)=", block[1]))
    for service in SERVICES["services"].values():
        found |= set(service.get("environment", {}))
    return found | set(re.findall(r"\$\{(\w+)", COMPOSE.read_text(encoding="utf-8")))


def test_the_container_file_passes_hadolint() -> None:
    done = subprocess.run([BIN / "hadolint", "--no-color", CONTAINERFILE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("fault", ["FROM python:latest\n", "FROM python\nRUN cd /tmp && sudo ls\n"])
def test_hadolint_finds_planted_faults(fault: str) -> None:
    done = subprocess.run([BIN / "hadolint", "-"], input=fault, capture_output=True, text=True)
    assert done.returncode == 1


def test_the_compose_file_follows_the_compose_specification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # check_jsonschema turns dates into text for every reader of YAML in its process
    monkeypatch.setattr(SafeConstructor, "yaml_constructors", dict(SafeConstructor.yaml_constructors))
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(COMPOSE.read_text(encoding="utf-8").replace("healthcheck:", "health_check:"))
    for file, status in ((COMPOSE, 0), (wrong, 1)):
        checked = click.testing.CliRunner().invoke(
            check_jsonschema.main, ["--builtin-schema", "vendor.compose-spec", str(file)]
        )
        assert checked.exit_code == status, checked.output


def test_every_variable_is_one_that_somebody_reads() -> None:
    assert {"PREFECT_SERVER_UI_API_URL", "PREFECT_HOME"} <= prefect_variables()
    assert "PREFECT_SERVER_UI_PATH" not in prefect_variables()
    assert prefect.__version__.startswith("3.")
    assert variables() - OTHERS - OURS - prefect_variables() == set()
    assert {"PRIVSYN_DATABASE_URL", "PRIVSYN_NOTIFY", "PRIVSYN_RELEASED"} <= variables()
    assert {"PRIVSYN_POLICY", "PRIVSYN_HISTORY_DAYS", "PRIVSYN_METRICS"} <= variables()


def test_every_path_of_the_project_is_there_and_goes_into_the_image() -> None:
    copied = re.findall(r"^COPY (.+) \S+$", TEXT, re.M)
    assert copied
    kept = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert kept[1] == "*"
    for name in " ".join(copied).split():
        assert (ROOT / name).exists(), name
        assert any(line.lstrip("!").split("/*")[0] == name for line in kept), name
    for service in SERVICES["services"].values():
        if "build" in service:
            assert (COMPOSE.parent / service["build"]["context"]).resolve() == ROOT
            assert (ROOT / service["build"]["dockerfile"]) == CONTAINERFILE
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    for secret in SERVICES["secrets"].values():
        assert f"/deployments/{Path(secret['file']).parent}/" in ignored


def test_every_link_that_is_copied_leads_to_what_is_copied_too() -> None:
    copied = " ".join(re.findall(r"^COPY (.+) \S+$", TEXT, re.M)).split()
    links = [path for name in copied for path in (ROOT / name).rglob("*") if path.is_symlink()]
    assert {path.name for path in links} == {"data_contracts", "tasks", "flows", "deployments"}
    for path in links:
        assert not path.readlink().is_absolute()
        assert path.resolve().relative_to(ROOT.resolve()).as_posix() in copied
    assert all(source == target for source, target in re.findall(r"^COPY (\w+) (\S+)$", TEXT, re.M))


def test_every_command_is_one_of_the_project_s() -> None:
    commands = [s["command"] for s in SERVICES["services"].values() if "command" in s and "entrypoint" not in s]
    commands.append(YAML(typ="safe").load(re.findall(r"^CMD (.+)$", TEXT, re.M)[0]))
    assert [c[:2] for c in commands] == [["privsyn", n] for n in ("ledger", "server", "worker", "deploy", "server")]
    for program, name, *options in commands:
        assert program == "privsyn"
        shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"})
        assert shown.exit_code == 0
        assert all(option in shown.output for option in options if option.startswith("--"))


def test_packages_are_installed_at_the_pinned_versions_only() -> None:
    installs = re.findall(r"pip install .*", TEXT)
    assert installs
    assert all(
        "--no-deps --require-hashes -r requirements.lock" in i or "--no-deps --no-build-isolation" in i
        for i in installs
    )


def test_images_have_a_version_and_a_digest_and_no_registry_s_name() -> None:
    images = [*re.findall(r"^FROM (\S+)", TEXT, re.M), SERVICES["services"]["database"]["image"]]
    assert all(re.fullmatch(r"[a-z]+:[0-9][0-9a-z.-]+@sha256:[0-9a-f]{64}", image) for image in images)


def test_nothing_runs_as_root_and_no_secret_stands_in_the_files() -> None:
    assert re.findall(r"^USER (.+)$", TEXT, re.M) == ["10001:10001"]
    for name, service in SERVICES["services"].items():
        environment = service.get("environment", {})
        if name != "database":  # its image drops root itself
            assert service["user"] == "10001:10001"
            assert service["cap_drop"] == ["ALL"]
            assert service["read_only"] is True
        owner = name in ("database", "ledger", "ledger-role")  # all others can only add to the ledger
        assert ("database_password" in service["secrets"]) is owner
        assert ("worker_password" in service["secrets"]) is (not owner or name == "ledger-role")
        assert ("privsyn_worker@" in str(environment)) is not owner
        assert not any("PASSWORD" in key and not key.endswith("_FILE") for key in environment)
        assert not re.search(r"://[^/@]*:[^/@]*@", str(environment))


def test_whoever_talks_to_the_server_has_its_login_from_a_secret() -> None:
    for name in ("server", "worker", "deploy"):
        service = SERVICES["services"][name]
        assert service["environment"]["PRIVSYN_LOGIN_FILE"] == "/run/secrets/login"
        assert "login" in service["secrets"]
    assert "login" not in SERVICES["services"]["database"]["secrets"]
    assert SERVICES["secrets"]["login"] == {"file": "secrets/login"}


def test_what_must_last_lies_in_volumes_that_exist() -> None:
    mounts: dict[str, set[str]] = {}
    for name, service in SERVICES["services"].items():
        listed = service.get("volumes", ())
        places = dict(m.rsplit(":", 1) if m.count(":") == 1 else m.rsplit(":", 2)[:2] for m in listed)
        mounts[name] = set(places.values())
        assert {p for p in places if re.fullmatch(r"\w+", p)} <= set(SERVICES["volumes"])
    assert {"/var/lib/privsyn/released", "/var/lib/privsyn/private", "/data"} <= mounts["worker"]
    assert mounts["database"] == {"/var/lib/postgresql/data"}
    for image_folder in {m for name in ("server", "worker", "deploy") for m in mounts[name]} - {"/data"}:
        assert image_folder in TEXT


def test_what_runs_on_says_when_it_is_healthy_and_waits_for_what_it_needs() -> None:
    services = SERVICES["services"]
    assert all("healthcheck" in services[name] for name in ("database", "server", "worker"))
    assert {n: list(s.get("depends_on", {})) for n, s in services.items()} == {
        "database": [],
        "ledger": ["database"],
        "ledger-role": ["ledger"],
        "server": ["ledger-role"],
        "worker": ["server"],
        "deploy": ["server"],
    }
    conditions = [c["condition"] for s in services.values() for c in s.get("depends_on", {}).values()]
    assert set(conditions) == {"service_healthy", "service_completed_successfully"}
    ends = {n for s in services.values() for n, c in s.get("depends_on", {}).items() if "completed" in c["condition"]}
    assert all(services[name]["restart"] == "no" for name in ends)


def test_the_page_is_given_to_this_computer_only() -> None:
    assert SERVICES["services"]["server"]["ports"] == ["127.0.0.1:${PRIVSYN_PORT:-4200}:4200"]
    assert "ports" not in SERVICES["services"]["database"]
    assert SERVICES["networks"]["inside"]["internal"] is True
