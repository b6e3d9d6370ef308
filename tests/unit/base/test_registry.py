"""The registry: what is not there, and what cannot be imported, is one sentence with what to install."""

from __future__ import annotations

import ast
import sys
from importlib.metadata import EntryPoint, entry_points

import pytest

from privsyn.base import registry
from privsyn.base.errors import RequestError
from privsyn.base.pictures import draw_chart
from privsyn.base.registry import find_parts, load_part, need_package
from privsyn.evaluation.scores import check_packages
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
    assert len(files) > 400
    for file in files:
        top = ast.parse(file.read_text(encoding="utf-8")).body
        names = {a.name for n in top if isinstance(n, ast.Import) for a in n.names}
        names |= {n.module or "" for n in top if isinstance(n, ast.ImportFrom)}
        assert not extra & {name.partition(".")[0] for name in names}, file
