"""The registry: what is not there, and what cannot be imported, is one sentence with what to install."""

from __future__ import annotations

import ast
import runpy
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from privsyn.base import registry
from privsyn.base.errors import RequestError
from privsyn.base.pictures import draw_chart
from privsyn.base.places import DataUrl
from privsyn.base.registry import find_parts, load_part, load_parts, need_package
from privsyn.cli import app
from privsyn.evaluation.comparison import compare_methods
from privsyn.evaluation.comparison.method import Method
from privsyn.evaluation.scores import check_packages
from privsyn.sources.reader import Connector
from privsyn.sources.stream_source import is_streamed
from privsyn.storage.released_files import find_kind
from tests.support.places import ROOT


def test_a_part_that_no_package_adds_is_refused_by_its_name() -> None:
    with pytest.raises(RequestError, match=r"no installed package adds 'none' \(privsyn\.engines\)") as refused:
        load_part("engines", "none", "engine.kind")
    assert refused.value.field == "engine.kind" and refused.value.exit_code == 2


def test_of_two_parts_of_one_name_the_project_s_own_counts_and_a_broken_one_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = "privsyn.engines"
    theirs = [EntryPoint(name, "no_such_package:Engine", group) for name in ("dask", "other")]
    monkeypatch.setattr(registry, "entry_points", lambda *, group: [*entry_points(group=group), *theirs])
    find_parts.cache_clear()
    try:
        assert find_parts("engines")["dask"].module == "privsyn.extras.dask.dask_engine"
        with pytest.raises(RequestError, match=r"no_such_package:Engine, .* as 'other', cannot be loaded") as refused:
            load_part("engines", "other", "engine.kind")
        assert refused.value.field == "engine.kind"
    finally:
        find_parts.cache_clear()


@pytest.fixture
def add_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Add entry points of another package: pairs of a name and a value."""

    def add(group: str, *parts: tuple[str, str], own: bool = True) -> None:
        def find(*, group: str, wanted: str = f"privsyn.{group}") -> list[EntryPoint]:
            theirs = [EntryPoint(name, value, wanted) for name, value in parts if group == wanted]
            return [*(entry_points(group=group) if own else ()), *theirs]

        monkeypatch.setattr(registry, "entry_points", find)
        find_parts.cache_clear()

    yield add
    find_parts.cache_clear()


def test_a_package_takes_no_ending_or_name_of_the_program(add_parts: Callable[..., None]) -> None:
    add_parts("connectors", (".csv", "evil:CSV"), (".parquet", "evil:P"), (".gz", "evil:G"), (".lines", "other:L"))
    assert [is_streamed(f"table{ending}") for ending in (".csv", ".CSV", ".parquet", ".gz", ".lines")] == [
        *[False] * 4,
        True,
    ]
    add_parts("requests", ("synthesize", "evil:steps"), ("their-counts", "other:steps"))
    assert find_kind(["encode", "synthesize"]) is None
    assert find_kind(["their-counts"]) == "their-counts" and find_kind(["itemsets"]) == "itemsets"


def test_broken_packages_disable_nothing_else(
    add_parts: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "broken_package.py").write_text("raise ValueError('broken')")
    monkeypatch.syspath_prepend(tmp_path)
    add_parts("connectors", (".odd", "no value at all !"))
    assert is_streamed("a.odd") and not is_streamed("a.csv")
    add_parts("metrics", ("theirs", "broken_package:METRIC"))
    assert load_parts("metrics") == {}
    with pytest.raises(RequestError, match=r"cannot be loaded \(ValueError\)"):
        load_part("metrics", "theirs")
    add_parts("commands", ("theirs", "broken_package:command"))
    listed = CliRunner().invoke(app, ["--help"])
    assert listed.exit_code == 0 and "release" in listed.output and "its package cannot be loaded" in listed.output
    called = CliRunner().invoke(app, ["theirs"])
    assert called.exit_code == 2 and "Repair or remove the package" in called.stderr


def test_an_installation_older_than_its_code_says_so(add_parts: Callable[..., None]) -> None:
    add_parts("requests", own=False)
    with pytest.raises(RequestError, match=r"older than its code\. Install it once more"):
        is_streamed("table.xlsx")
    assert CliRunner().invoke(app, ["--help"]).exit_code == 0
    assert not is_streamed("table.csv")


def test_the_program_s_own_methods_win(add_parts: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Method("default", "Mine", "says it is the default", "nowhere", lambda trial: pytest.fail("called"))
    module = ModuleType("their_methods")
    module.METHODS = (mine, replace(mine, name="mine"))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "their_methods", module)
    add_parts("methods", ("theirs", "their_methods:METHODS"))
    names = runpy.run_path(compare_methods.__file__)["METHODS"]
    assert names["mine"].title == "Mine" and names["default"].title != "Mine"


def test_a_package_that_is_not_installed_is_refused_with_its_extra() -> None:
    with (
        pytest.raises(RequestError, match=r"reading it needs the package none, .* pip install 'privsyn-flows\[some\]'"),
        need_package("none", "reading it", "some"),
    ):
        import no_such_package  # type: ignore[import-not-found]  # noqa: F401


@pytest.mark.parametrize("package", ["sklearn", "vl_convert"])
def test_an_evaluation_without_its_packages_is_refused_with_their_extra(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_packages()
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(
        RequestError, match=r"is not installed\. Install it with: pip install 'privsyn-flows\[evaluation\]'"
    ):
        check_packages()


def test_a_picture_without_its_package_is_refused_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(RequestError, match=r"a picture needs the package vl-convert-python.*\[evaluation\]"):
        draw_chart({}, "png")


def test_every_part_of_the_extras_can_be_loaded() -> None:
    groups = ("codebooks", "commands", "connectors", "engines", "methods", "requests", "stores", "telemetry")
    loaded = {(g, name): load_part(g, name) for g in groups for name in find_parts(g)}  # type: ignore[arg-type]
    assert len(loaded) > 20 and all(part is not None for part in loaded.values())


def test_nothing_imports_a_package_of_an_extra_at_its_top() -> None:
    """What extras bring is imported inside functions, and so by nothing that a release loads."""
    extra = {"sklearn", "vl_convert", "dask", "distributed", "deltalake", "pyiceberg", "paramiko", "openlineage"}
    files = [f for name in ("privsyn", "tasks", "flows", "data_contracts") for f in (ROOT / name).rglob("*.py")]
    assert len(files) > 300
    for file in files:
        top = ast.parse(file.read_text(encoding="utf-8")).body
        names = {a.name for n in top if isinstance(n, ast.Import) for a in n.names}
        names |= {n.module or "" for n in top if isinstance(n, ast.ImportFrom)}
        assert not extra & {name.partition(".")[0] for name in names}, file


def test_every_option_of_a_package_s_scheme_counts_in_a_policy(
    add_parts: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("their_tables")
    module.TABLES = Connector(lambda place, columns: pytest.fail("opened"), ("dataset",))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "their_tables", module)
    add_parts("connectors", ("bq", "their_tables:TABLES"))
    secret, public = (DataUrl.parse(f"bq://project/db?dataset={name}") for name in ("secret", "public"))
    allowed = ["bq://project/db?dataset=public"]
    assert public.is_within(allowed) and not secret.is_within(allowed) and secret.is_within(["bq://project/db"])
