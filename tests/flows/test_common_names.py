"""The user's own modules `tasks`, `flows` and `data_contracts` and this program do not see each other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from privsyn.server import release_server
from tests.support.specs import PEOPLE_YAML, people
from tests.support.user_folder import (
    RELEASE_SCRIPT,
    imported_modules,
    write_modules_of_common_names,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder with such modules, a table, its spec and a script."""
    write_modules_of_common_names(tmp_path)
    pq.write_table(people(300), tmp_path / "people.parquet")
    (tmp_path / "people.yaml").write_text(PEOPLE_YAML, encoding="utf-8")
    (tmp_path / "dask.yaml").write_text(f"{PEOPLE_YAML}engine: {{kind: dask, workers: 1}}\n", encoding="utf-8")
    (tmp_path / "script.py").write_text(RELEASE_SCRIPT, encoding="utf-8")
    return tmp_path


def run(folder: Path, *command: str) -> str:
    """What the command prints when it runs in the folder; its last line is a release's folder where it makes one."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("PRIVSYN_", "PREFECT_"))}
    environment = {**kept, "HOME": str(folder), "PRIVSYN_OUT": str(folder / "out")}
    environment["PRIVSYN_LEDGER"] = str(folder / "ledger.sqlite")
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_dask_s_workers_get_the_program_s_modules(folder: Path) -> None:
    pytest.importorskip("distributed", reason="no Dask: install privsyn-flows[dask]")
    shown = run(folder, sys.executable, "script.py", "dask.yaml")
    assert (Path(shown.split()[-1]) / "synthetic.parquet").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [(sys.executable, "-m", "privsyn.cli"), (str(Path(sys.executable).with_name("privsyn")),)],
    ids=["module", "script"],
)  # fmt: skip
def test_the_command_imports_none_of_the_user_s_modules(folder: Path, command: tuple[str, ...]) -> None:
    shown = json.loads(run(folder, *command, "release", "people.yaml", "--json"))
    assert (folder / "out" / "released" / shown["run"] / "synthetic.parquet").is_file()
    assert imported_modules(folder) == []


def test_the_temporary_server_has_no_folder_of_common_names_on_its_path(folder: Path, tmp_path: Path) -> None:
    """Its command with another program, which shows the path."""
    before = release_server._build_command(4200)
    before = before[: before.index("uvicorn")]
    (ours := tmp_path / "elsewhere").mkdir()
    (ours / "show_path.py").write_text("import json, sys; print(json.dumps(sys.path))\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ours)}
    done = subprocess.run(
        [*before, "show_path"], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )
    path = json.loads(done.stdout)
    assert str(ours) in path
    assert not {"", str(folder), str(Path(release_server.__file__).parent)} & set(path)
