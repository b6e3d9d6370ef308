"""The systemd units, as text: they start the project's commands, start them again, and stop them as they want to be."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from privsyn.cli import app
from privsyn.server.server_and_worker import STOP_SECONDS
from tests.support.places import ROOT

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
