"""The file of deployments is checked whole: what is wrong in any entry is said before a server is asked."""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.server import deployments_file
from privsyn.server.deployments_file import DEPLOYMENTS, read_deployments, write_starter_files
from privsyn.server.environment import Address
from privsyn.server.registration import register
from tests.support.commands import privsyn
from tests.support.places import ROOT


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `privsyn init` writes, as the working folder."""
    write_starter_files(tmp_path / "site")
    monkeypatch.chdir(tmp_path / "site")
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    return tmp_path / "site"


def rewrite(folder: Path, deployment: str, /, **changes: Any) -> None:
    """Change one deployment of the file."""
    file = folder / "deployments" / "prefect.yaml"
    yaml = YAML(typ="safe")
    content = yaml.load(file.read_text(encoding="utf-8"))
    for entry in content["deployments"]:
        if entry["name"] == deployment:
            entry.update(changes)
    with file.open("w", encoding="utf-8") as opened:
        yaml.dump(content, opened)


def test_the_files_of_the_package_are_the_repository_s_and_fit_each_other(folder: Path) -> None:
    found = read_deployments(Path("deployments/prefect.yaml"))
    assert {one.name for one in found if one.is_filled_in} == {"gss-weekly", "gss-monthly"}
    for name in DEPLOYMENTS:
        written, ours = ((root / "deployments" / name).read_text() for root in (folder, ROOT))
        assert (written == ours) is not name.endswith(".service")
    unit = (folder / "deployments" / "privsyn-server.service").read_text()
    assert f"WorkingDirectory={folder}\n" in unit and "/opt/privsyn" not in unit
    checked = privsyn("spec", "check", "examples/gss.yaml")
    assert checked.exit_code == 0, checked.output


def test_the_command_writes_them_once_and_replaces_nothing(tmp_path: Path) -> None:
    assert privsyn("init", tmp_path / "new").exit_code == 0
    kept = {path: path.read_bytes() for path in (tmp_path / "new").rglob("*") if path.is_file()}
    assert len(kept) == len(DEPLOYMENTS) + 2
    (tmp_path / "new" / "examples" / "gss.yaml").unlink()
    again = privsyn("init", tmp_path / "new")
    assert again.exit_code == 2 and "FOLDER: " in again.stderr and "is there already" in again.stderr
    assert not (tmp_path / "new" / "examples" / "gss.yaml").exists()
    assert all(path.read_bytes() == text for path, text in kept.items() if path.exists())
    (tmp_path / "file").touch()
    assert privsyn("init", tmp_path / "file" / "x").exit_code != 0
    assert "FOLDER: " in (wrong := privsyn("init", tmp_path / "file").stderr) and "is a file" in wrong
    assert "FOLDER: is empty" in privsyn("init", "").stderr


SCHEMA = {
    "type": "object",
    "properties": {"spec": {"type": "object", "properties": {"min": {"type": "string"}}}},
}
WRONG = {
    "no flow": ({"entrypoint": "privsyn.flows.release.nothing"}, "there is no flow privsyn.flows.release.nothing"),
    "a parameter": ({"parameters": {"speck": {}}}, "its flow takes no parameter 'speck'. It takes spec, fresh"),
    "a value": ({"parameters": {"spec": "{{ file.spec }}", "fresh": "often"}}, "field 'fresh'"),
    "a limit": ({"concurrency_limit": {"limit": 1, "collision_strategy": "WAIT"}}, "its `concurrency_limit` makes no"),
    "no limit": ({"concurrency_limit": 0}, "its `concurrency_limit` makes no sense. Write a whole number"),
    "no number": ({"concurrency_limit": True}, "its `concurrency_limit` makes no sense"),
    "a day": ({"concurrency_limit": date(2020, 1, 1)}, "its `concurrency_limit` makes no sense"),
    "no mapping": ({"parameters": ["spec"]}, "`parameters` is no mapping"),
    "no path": ({"build": [{"privsyn.flows.deploy.read_spec": {"id": "file"}}]}, "names no `path`"),
    "no spec": ({"build": [{"privsyn.flows.deploy.read_spec": {"path": "none.yaml"}}]}, "none.yaml"),
    "a field": ({"triggers": []}, "`triggers` is not registered by this command. It takes name, entrypoint,"),
    "a cron": ({"schedules": [{"cron": "0 99 * * *"}]}, "one of its schedules makes no sense"),
    "a zone": ({"schedules": [{"cron": "0 3 * * *", "timezone": "Mars"}]}, "one of its schedules makes no sense"),
}


@pytest.mark.parametrize(("changes", "words"), WRONG.values(), ids=list(WRONG))
def test_what_is_wrong_in_the_last_entry_is_said_before_a_server_is_asked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], words: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a server was asked")

    monkeypatch.setattr(Address, "wait", refuse)
    rewrite(folder, "gss-weekly", **changes)
    with pytest.raises(RequestError) as refusal:
        register(Settings(), print)
    text = str(refusal.value)
    assert text.startswith("file: the deployment 'gss-weekly' of deployments/prefect.yaml will not do"), text
    assert "nothing was registered" in text and words in text, text


def test_dates_and_what_prefect_fills_in_are_taken(folder: Path) -> None:
    spec = {"privacy": {"epsilon": "{{ $EPSILON }}"}, "columns": {"day": {"kind": "date", "min": date(2020, 1, 1)}}}
    deployments_file._check_values({"spec": spec}, SCHEMA)
    deployments_file._check_values({"spec": {"min": date(2020, 1, 1)}}, SCHEMA)
    deployments_file._check_values({"spec": {"__prefect_kind": "workspace_variable", "variable_name": "spec"}}, SCHEMA)
    deployments_file._check_limit("{{ $LIMIT }}")
    with pytest.raises(RequestError, match="a value of `parameters` is wrong"):
        deployments_file._check_values({"spec": {"min": 3}}, SCHEMA)


def test_a_wrong_spec_is_refused_with_its_field_and_no_traceback(folder: Path) -> None:
    spec = folder / "examples" / "gss.yaml"
    spec.write_text(spec.read_text().replace("epsilon: 1.0", "epsilon: -1"))
    done = privsyn("deploy")
    assert done.exit_code == 2
    assert "'gss-weekly'" in done.stderr and "privacy.epsilon" in done.stderr and "Traceback" not in done.stderr
    spec.unlink()
    assert "or start from `privsyn spec draft`." in privsyn("deploy").stderr  # the command's words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("deployments: [", "is no YAML"),
        ("- a\n", "has no list of deployments"),
        ("deployments: []\n", "has no list of deployments"),
        ("deployments:\n- name: x\n", "lacks `name` or `entrypoint`"),
        ("deployments:\n- 3\n", "lacks `name` or `entrypoint`"),
        (None, "there is no file"),
        (b"\xff", "cannot be read"),
    ],
)
def test_a_file_that_is_none_is_refused(folder: Path, text: str | bytes | None, words: str) -> None:
    file = folder / "deployments" / "prefect.yaml"
    file.unlink()
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(RequestError, match=words):
        register(Settings(), print)


def test_two_of_one_name_are_refused(folder: Path) -> None:
    file = folder / "deployments" / "prefect.yaml"
    shutil.copy(ROOT / "deployments" / "prefect.yaml", file)
    rewrite(folder, "gss-weekly", name="any-table")
    with pytest.raises(RequestError, match="two deployments 'any-table' of one flow"):
        read_deployments(file)
