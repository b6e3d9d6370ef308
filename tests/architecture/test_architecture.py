"""The shape of the project: who draws noise, who imports what, what is documented, what is wired to what."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from data_contracts.artifacts import Kind, Zone
from flows.drawing import mermaid
from flows.rounds import rounds, steps_of
from flows.shell import StepRefs
from flows.step import Step, base_name
from flows.steps import STEPS
from flows.wiring import release_steps
from tests.specs import make_spec

ROOT = Path(__file__).parents[2]
PACKAGES = ("data_contracts", "tasks", "flows")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
NOISE = "tasks/privacy/noise.py"
ACCOUNTANT = "tasks/privacy/accountant.py"

DRAWS = frozenset(
    {
        "normal",
        "standard_normal",
        "multivariate_normal",
        "lognormal",
        "laplace",
        "make_gaussian",
        "make_laplace",
        "make_geometric",
        "make_noise",
        "then_gaussian",
        "then_laplace",
        "then_geometric",
        "then_noise",
        "gauss",
        "normalvariate",
        "standard_t",
        "standard_cauchy",
        "geometric",
        "dlaplace",
        "gumbel",
        "logistic",
        "exponential",
        "standard_exponential",
        "expovariate",
        "discrete_gaussian",
        "discrete_laplace",
        "standard_gamma",
        "binomial",
        "poisson",
        "rvs",
        "randn",
        "box_muller",
        "skellam",
    }
)
"""Names of draws that could serve as noise.  Even draws and permutations are not among them: synthesis needs those."""

FORBIDDEN = {
    "opendp": ("tasks/privacy/",),
    "prefect": ("flows/",),
    "great_expectations": ("flows/",),
    "sqlalchemy": ("flows/",),
    "typer": ("flows/",),
    "rich": ("flows/",),
    "random": (),
    "dp_accounting": (),
}
"""Package -> the only places that may import it."""

MAY_SHARE = {
    ("measure_marginals", "one_way_marginals"),  # the same exact count of cliques
    ("make_consistent", "compress_domain"),
    ("decode", "compress_domain"),
    ("indif_scores", "compress_domain"),  # the value Recode
    ("select_pairs", "compress_domain"),
    ("residual_scores", "indif_scores"),  # the same distance to a fixed table
    ("select_again", "combine_cliques"),  # the one-ways' part of the weights
    ("select_again", "compress_domain"),
}
"""(step's module, other step's module whose value it uses)."""


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def draws(source: str) -> set[str]:
    """Every draw of noise that the source names, as a call, an attribute or an import."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found.add(node.func.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            found.update(alias.name for alias in node.names)
    return found & DRAWS


def imports(source: str) -> set[str]:
    """Every module that the source imports, wherever it stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def test_only_one_module_draws_noise() -> None:
    found = {relative(path): drawn for path in MODULES if (drawn := draws(path.read_text(encoding="utf-8")))}
    assert {"make_gaussian", "normal"} <= found.pop(NOISE)
    assert found == {ACCOUNTANT: {"make_gaussian"}}


def test_the_accountants_mechanism_only_converts_and_is_never_invoked() -> None:
    tree = ast.parse((ROOT / ACCOUNTANT).read_text(encoding="utf-8"))
    names = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert "carrier" not in names
    uses = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "carrier"]
    handed = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "make_zCDP_to_approxDP"
        and isinstance(node.args[0], ast.Name)
    ]
    assert len(uses) == 2  # made, and handed to the conversion
    assert len(handed) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import numpy as np\nx = np.random.default_rng(1).normal(0, 1)",
        "from random import gauss\ngauss(0, 1)",
        "import opendp.prelude as dp\ndp.m.make_laplace(d, m, scale=1.0)",
        "draw = rng.standard_normal\ndraw(3)",
        "from numpy.random import laplace as l\nl(0, 1)",
        "import scipy.stats as s\ns.norm.rvs(size=3)",
    ],
)
def test_the_search_for_draws_finds_planted_ones(source: str) -> None:
    assert draws(source)


@pytest.mark.parametrize("package", FORBIDDEN)
def test_packages_are_imported_only_where_they_belong(package: str) -> None:
    users = {
        relative(path)
        for path in MODULES
        if any(name.split(".")[0] == package for name in imports(path.read_text(encoding="utf-8")))
    }
    assert {user for user in users if not user.startswith(FORBIDDEN[package] or "nowhere")} == set()
    assert bool(users) == bool(FORBIDDEN[package])


def test_steps_do_not_import_each_other() -> None:
    declared = {base_name(step.name) for step in (*STEPS, *rounds(1)[0])}
    steps = {step for step in declared if (ROOT / "tasks" / f"{step}.py").exists()}
    assert declared - steps == {"recode_rows", "rows_so_far", "measure_again"}  # compress_domain's; two of steps again
    shared = set()
    for step in steps:
        names = imports((ROOT / "tasks" / f"{step}.py").read_text(encoding="utf-8"))
        used = {name.split(".")[1] for name in names if name.startswith("tasks.")}
        shared |= {(step, other) for other in used & steps - {step}}
    assert shared == MAY_SHARE


def test_layers_point_one_way() -> None:
    above = {"data_contracts": {"tasks", "flows"}, "tasks": {"flows"}, "flows": set()}
    for path in MODULES:
        package = relative(path).split("/")[0]
        tops = {name.split(".")[0] for name in imports(path.read_text(encoding="utf-8"))}
        assert not tops & above[package], relative(path)
        assert not tops & {"tests", "benchmarks"}, relative(path)


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_headers_say_what_belongs_and_public_things_are_documented(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    header = " ".join((ast.get_docstring(tree) or "").split())
    assert header
    if path.name != "__init__.py":
        assert "Belongs here:" in header
        assert "Does not belong here:" in header
    assert list(undocumented(tree)) == []


def undocumented(tree: ast.Module) -> Iterator[str]:
    """Public functions, classes and methods without a docstring."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            if not ast.get_docstring(node):
                yield node.name
            if isinstance(node, ast.ClassDef):
                methods = [m for m in node.body if isinstance(m, ast.FunctionDef) and not m.name.startswith("_")]
                yield from (f"{node.name}.{m.name}" for m in methods if not ast.get_docstring(m))


def test_undocumented_things_are_found() -> None:
    tree = ast.parse("def f(): ...\nclass A:\n    'a'\n    def g(self): ...\n    def _h(self): ...\n")
    assert list(undocumented(tree)) == ["f", "A.g"]


def test_the_two_caps_that_prefect_needs_stand() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    dependencies = tomllib.loads(text)["project"]["dependencies"]
    caps = {re.split(r"[<>=]", d)[0]: d for d in dependencies}
    assert caps["fastapi"].endswith("<0.151")
    assert caps["sqlalchemy"].endswith("<2.1")


def test_constraints_pin_versions_and_name_no_place() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    wrong = [line for line in lines if not re.fullmatch(r"[a-z0-9][a-z0-9-]*==[0-9][0-9a-z.+!-]*", line)]
    assert wrong == []
    pinned = {line.split("==")[0] for line in lines}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {re.split(r"[<>=\[]", d)[0].replace("_", "-").replace(".", "-") for d in project["dependencies"]}
    assert needed <= pinned


@dataclass
class Recorder:
    """Runs nothing; notes which outputs each step was handed."""

    calls: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    def __call__(self, step: Step, *inputs: StepRefs) -> StepRefs:
        """References without tables."""
        self.calls.append((step.name, tuple(refs.step for refs in inputs)))
        return StepRefs(step=step.name, key="k", tables={})


def producers(step: Step) -> tuple[str, ...]:
    """The steps whose tables it declares, once each, in declared order."""
    return tuple(dict.fromkeys(name.split(".")[0] for name in step.inputs))


@pytest.mark.parametrize("further", [0, 1, 3])
def test_the_wiring_follows_the_declarations(further: int) -> None:
    recorder, declared = Recorder(), steps_of(make_spec(adaptive={"rounds": further}))
    refs = release_steps(recorder, further)
    assert recorder.calls == [(step.name, producers(step)) for step in declared]
    assert list(refs) == [step.name for step in declared]


@pytest.mark.parametrize("further", [0, 1, 3])
def test_every_declared_input_is_an_earlier_steps_output(further: int) -> None:
    made: set[str] = set()
    for step in steps_of(make_spec(adaptive={"rounds": further})):
        assert set(step.inputs) <= made, step.name
        made |= {f"{step.name}.{table}" for table in step.outputs}


def test_every_kind_keeps_its_rules() -> None:
    assert broken_rules(STEPS) == []
    assert broken_rules(steps_of(make_spec(adaptive={"rounds": 3}))) == []
    assert [step.name for step in STEPS if step.kind is Kind.RELEASE] == [
        "one_way_marginals",
        "indif_scores",
        "measure_marginals",
    ]


def test_a_step_of_the_wrong_kind_is_found() -> None:
    from dataclasses import replace

    select = next(step for step in STEPS if step.name == "select_pairs")
    mutant = replace(select, inputs=(*select.inputs, "recode_rows.recoded_rows"))
    assert broken_rules([mutant if step.name == "select_pairs" else step for step in STEPS]) == ["select_pairs"]


def broken_rules(steps: Sequence[Step]) -> list[str]:
    """Steps that move private tables to the released zone, or make rows private that they got released."""
    zones = {f"{step.name}.{name}": contract.zone for step in steps for name, contract in step.outputs.items()}
    broken = []
    for step in steps:
        reads = {zones[name] for name in step.inputs} or {Zone.PRIVATE}  # the first step reads the private table
        makes = {contract.zone for contract in step.outputs.values()}
        fine = {
            Kind.TRANSFORM: makes == {Zone.PRIVATE},
            Kind.RELEASE: Zone.PRIVATE in reads and makes == {Zone.RELEASED},
            Kind.POSTPROCESS: reads == {Zone.RELEASED} == makes,
        }
        if not fine[step.kind]:
            broken.append(step.name)
    return broken


def test_the_drawing_shows_every_step_and_every_table_read() -> None:
    text = mermaid()
    for step in STEPS:
        assert f'{step.name}["{step.title}"]:::{step.kind}' in text
        for producer in producers(step):
            assert re.search(rf'^    {producer} -- "[a-z, ]+" --> {step.name}$', text, re.MULTILINE)
    assert text.count("-->") == sum(len(producers(step)) for step in STEPS)


def test_the_documents_drawing_is_the_wiring() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    shown = text.partition("<!-- wiring -->")[2].partition("<!-- /wiring -->")[0].strip()
    assert shown == f"```mermaid\n{mermaid()}\n```"


def test_help_loads_nothing_heavy() -> None:
    """What makes the command answer at once: its modules alone load neither settings, tables nor Prefect."""
    heavy = (
        "numpy",
        "pyarrow",
        "pandas",
        "numba",
        "pydantic",
        "prefect",
        "great_expectations",
        "sqlalchemy",
        "networkx",
    )
    program = f"import sys, flows.cli; print([m for m in {heavy!r} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT)
    assert shown.stdout.strip() == "[]"


UNSEEN_WRITES = {
    "write_table",
    "ParquetWriter",
    "write_csv",
    "write_feather",
    "write_dataset",
    "to_parquet",
    "to_csv",
    "tofile",
}
"""Calls that write a file without Python's own `open`: tests/faults.py must wrap each place by hand."""

WRAPPED = {("flows/storage/store.py", "ParquetWriter"), ("flows/storage/records.py", "write_table")}
"""(module, call) that it wraps."""


def test_every_write_that_python_does_not_see_is_one_that_the_fault_tests_wrap() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), node.func.attr)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in UNSEEN_WRITES
        and ast.unparse(node.func.value) != "self.store"
    }
    assert found == WRAPPED
