"""What is installed: the one package `privsyn`, whole, and nothing else of the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterable
from html import unescape
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from tests.support.documented import python_of
from tests.support.places import ROOT
from tests.support.specs import PEOPLE_YAML, people
from tests.support.user_folder import RELEASE_SCRIPT, write_modules_of_common_names

pytest.importorskip("setuptools", minversion="77", reason="no build backend: install privsyn-flows[dev]")

LINKED = ("data_contracts", "tasks", "flows", "deployments")
"""Folders of the repository that are packages or data of `privsyn` by links."""

OTHER = (".git", ".venv*", "__pycache__", "*.egg-info", "build", "dist", "demo", "privsyn-out", "out", ".*_cache")
"""What lies in a checkout and is no part of it."""

HOOK = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"


def package_files() -> set[str]:
    """Every file of the repository that the package needs, by its name in the package."""
    folders = {"privsyn": ROOT / "privsyn", **{f"privsyn/{name}": ROOT / name for name in LINKED}}
    return {
        f"{name}/{path.relative_to(folder).as_posix()}"
        for name, folder in folders.items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def outside(names: Iterable[str]) -> set[str]:
    """Top-level names of an archive but the package and its metadata."""
    tops = {name.split("/")[0] for name in names}
    return {top for top in tops if top != "privsyn" and not top.endswith(".dist-info")}


def build_wheel(source: Path, target: Path) -> Path:
    """Build the source folder's wheel with the setuptools installed here; return the archive."""
    target.mkdir(exist_ok=True)
    done = subprocess.run([sys.executable, "-c", HOOK, str(target)], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository, with its links, for what a build leaves behind."""
    folder = tmp_path_factory.mktemp("build") / "checkout"
    shutil.copytree(ROOT, folder, symlinks=True, ignore=shutil.ignore_patterns(*OTHER))
    return folder


@pytest.fixture(scope="module")
def distribution(checkout: Path) -> Path:
    """The folder with what is uploaded: the sdist, and the wheel that is built from the sdist."""
    pytest.importorskip("build", reason="no build frontend: install privsyn-flows[dev]")
    folder = checkout.parent / "dist"
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(checkout)]
    done = subprocess.run(command, cwd=checkout.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(distribution: Path) -> Path:
    """The wheel that is uploaded."""
    (built,) = distribution.glob("*.whl")
    return built


def content(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def configuration(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What setuptools reads from pyproject.toml."""
    from setuptools import Distribution

    monkeypatch.chdir(ROOT)
    distribution = Distribution({"long_description": "setup.py makes it"})
    distribution.parse_config_files()
    return distribution


def test_wheels_of_two_builds_have_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    """Of another checkout, whose files have other times and rights, under another umask."""
    folder = tmp_path / "checkout"
    shutil.copytree(ROOT, folder, symlinks=True, ignore=shutil.ignore_patterns(*OTHER))
    for path in (p for p in folder.rglob("*") if p.is_file() and not p.is_symlink()):
        path.chmod(0o600)
        os.utime(path, (1_000_000_000, 1_000_000_000))
    umask = os.umask(0o077)
    try:
        again = build_wheel(folder, tmp_path / "again")
    finally:
        os.umask(umask)
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()


def test_the_linked_folders_are_links_that_hold_in_any_place() -> None:
    for name in LINKED:
        assert (ROOT / "privsyn" / name).readlink() == Path("..") / name


def test_the_version_of_the_metadata_is_that_of_the_citation_and_the_changelog(monkeypatch: pytest.MonkeyPatch) -> None:
    version = configuration(monkeypatch).get_version()
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    is_released = ".dev" not in version
    assert re.fullmatch(
        rf"{re.escape(version)} - \d{{4}}-\d{{2}}-\d{{2}}" if is_released else "Unreleased", headings[0]
    )


def test_the_wheel_holds_the_package_whole_and_nothing_else(wheel: Path) -> None:
    files = content(wheel)
    assert outside(files) == set()
    assert {name for name in files if name.startswith("privsyn/")} == package_files()
    (metadata,) = (text.decode() for name, text in files.items() if name.endswith("/METADATA"))
    for line in ("License-Expression: Apache-2.0", "License-File: LICENSE", "License-File: NOTICE"):
        assert f"\n{line}\n" in metadata


@pytest.mark.slow
def test_the_wheel_of_the_sdist_is_the_same(checkout: Path, wheel: Path, distribution: Path) -> None:
    (sdist,), direct = distribution.glob("*.tar.gz"), build_wheel(checkout, checkout.parent / "wheel")
    with tarfile.open(sdist) as archive:
        assert [member.name for member in archive if member.issym() or member.islnk()] == []
        archive.extractall(checkout.parent / "unpacked")  # noqa: S202 - built here
    (source,) = (checkout.parent / "unpacked").iterdir()
    assert content(wheel) == content(direct)
    assert not {"tests", "benchmarks", "tasks", "flows", "data_contracts"} & {path.name for path in source.iterdir()}


def test_a_package_index_takes_both_archives(distribution: Path) -> None:
    pytest.importorskip("twine", reason="no twine: install privsyn-flows[dev]")
    archives = [str(path) for path in sorted(distribution.iterdir())]
    assert len(archives) == 2
    command = [sys.executable, "-m", "twine", "check", "--strict", *archives]
    done = subprocess.run(command, cwd=distribution, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def places_linked_in(page: str) -> list[str]:
    """Where links and pictures of a rendered page lead, but to headings of the page itself."""
    return [place for place in re.findall(r'(?:href|src)="([^"]+)"', page) if not place.startswith("#")]


def test_the_readme_renders_on_an_index(wheel: Path) -> None:
    markdown = pytest.importorskip("readme_renderer.markdown", reason="no renderer: install privsyn-flows[dev]")
    (metadata,) = (text.decode() for name, text in content(wheel).items() if name.endswith("/METADATA"))
    page = markdown.render(metadata.partition("\n\n")[2])
    assert "privsyn.example()" in unescape(re.sub("<[^>]+>", "", page))
    assert "<h1" in page and "<table>" in page
    assert [place for place in places_linked_in(page) if not place.startswith("https://")] == []


def test_where_the_repository_is_known_its_links_are_absolute() -> None:
    spec = spec_from_file_location("setup_script", ROOT / "setup.py")
    assert spec is not None and spec.loader is not None
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    page = script.make_readme_for_index(text, "1.2", "https://host/owner/name/")
    assert "](https://host/owner/name/raw/v1.2/docs/img/gss.png)" in page
    assert "](https://host/owner/name/blob/v1.2/docs/api.md)" in page
    targets = re.findall(r"\]\(([^)]+)\)", page)
    assert len(targets) == len(re.findall(r"\]\(([^)]+)\)", text)) > 20
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and this one's dependencies, but not the checkout."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    site = find_site(python)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*install, "--ignore-installed", str(wheel)], check=True, capture_output=True)
    assert outside(path.name for path in site.iterdir()) == {"dependencies.pth"}
    return python


def find_site(python: Path) -> Path:
    """The folder of an interpreter's packages."""
    where = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return Path(subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip())


def run_installed(*command: str | Path, folder: Path) -> list[str]:
    """Run a command there with an empty home; the words that it prints."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("PRIVSYN_", "PREFECT_", "PYTHON", "XDG_"))}
    environment = {**kept, "HOME": str(folder.parent)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.slow
def test_installed_in_an_empty_folder_the_lines_of_the_readme_run(python: Path, tmp_path: Path) -> None:
    (folder := tmp_path / "empty").mkdir()
    shown = run_installed(python, "-c", f"{python_of('README.md')}\nprint(privsyn.__file__)", folder=folder)
    assert shown[-1] == str(find_site(python) / "privsyn" / "__init__.py")
    (table,) = folder.glob("privsyn-out/released/example-*/synthetic.parquet")
    assert table.stat().st_size > 10_000
    assert [path.name for path in folder.iterdir()] == ["privsyn-out"]


@pytest.mark.slow
def test_installed_it_makes_a_release_beside_modules_of_common_names(python: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    (folder := tmp_path / "folder").mkdir()
    write_modules_of_common_names(folder)
    pq.write_table(people(300), folder / "people.parquet")
    (folder / "people.yaml").write_text(PEOPLE_YAML, encoding="utf-8")
    (folder / "script.py").write_text(RELEASE_SCRIPT, encoding="utf-8")
    made = run_installed(python, "script.py", "people.yaml", folder=folder)
    assert (Path(made[-1]) / "synthetic.parquet").is_file()
    for words in (("spec", "check", "people.yaml"), ("init", "new"), ("spec", "check", "new/examples/gss.yaml")):
        run_installed(python.with_name("privsyn"), *words, folder=folder)
    assert (folder / "new" / "deployments" / "prefect.yaml").is_file()


def test_installed_the_common_names_are_free(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")  # noqa: S202 - built here
    program = (
        "import importlib, importlib.util, sys\n"
        "for name in sys.argv[1:]: importlib.import_module(f'privsyn.{name}')\n"
        "print([importlib.util.find_spec(name) for name in sys.argv[1:]])"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    command = [sys.executable, "-P", "-c", program, *LINKED]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == (str([None] * len(LINKED)), "")
