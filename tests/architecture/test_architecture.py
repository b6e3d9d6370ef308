"""The shape of the project: who draws noise, who imports what, what is documented, what is wired to what."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest

from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import StepKind, Zone
from privsyn.engine.request import Request
from privsyn.engine.step import LookDescription, ReleaseStep, Step, get_step, release_steps, say
from privsyn.pipelines import registry
from privsyn.pipelines.budget import split_budget
from privsyn.pipelines.one_shot import STEPS
from privsyn.pipelines.registry import build_steps
from tests.support.places import ROOT
from tests.support.specs import make_spec, mechanism_fields

PACKAGES = ("data_contracts", "tasks", "privsyn", "flows")
"""The folders of the repository; installed, the others are packages of `privsyn`."""
MODULES = sorted(
    path
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if not (path.parent / path.name).is_symlink()
)
NOISE = "tasks/privacy/noise.py"
ACCOUNTANT = "tasks/privacy/accountant.py"
SECOND_OPINION = "tasks/privacy/second_opinion.py"

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

NAMED_DRAWS = re.compile("|".join(DRAWS))
"""What a module without them is not walked for: a walk through all takes seconds."""


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


@cache
def imports(source: str) -> frozenset[str]:
    """Every module that the source imports, wherever it stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(found)


def test_only_one_module_draws_noise() -> None:
    texts = {relative(path): path.read_text(encoding="utf-8") for path in MODULES}
    found = {name: drawn for name, text in texts.items() if NAMED_DRAWS.search(text) and (drawn := draws(text))}
    assert {"make_gaussian", "normal"} <= found.pop(NOISE)
    assert found == {ACCOUNTANT: {"make_gaussian"}, SECOND_OPINION: {"make_gaussian"}}


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


def find_invoked_mechanisms(source: str) -> list[int]:
    """Lines where a mechanism is made and neither mapped nor handed to the conversion, whose result is mapped only."""
    tree = ast.parse(source)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    wrong = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "make_gaussian":
            parent = parents[node]
            mapped = isinstance(parent, ast.Attribute) and parent.attr == "map"
            converted = (
                isinstance(parent, ast.Call)
                and ast.unparse(parent.func) == "make_zCDP_to_approxDP"
                and ast.unparse(parents[parent]).startswith("together = ")
            )
            wrong += [] if mapped or converted else [node.lineno]
        elif isinstance(node, ast.Name) and node.id == "together" and isinstance(node.ctx, ast.Load):
            parent = parents[node]
            wrong += [] if isinstance(parent, ast.Attribute) and parent.attr == "map" else [node.lineno]
    return wrong


def test_the_second_opinion_s_mechanisms_are_mapped_and_never_invoked() -> None:
    source = (ROOT / SECOND_OPINION).read_text(encoding="utf-8")
    assert source.count("make_gaussian(") == 2
    assert find_invoked_mechanisms(source) == []
    assert find_invoked_mechanisms(source.replace("together.map(distance)", "together([0])"))
    assert find_invoked_mechanisms(source.replace(").map(float(sensitivity))", ")([0])"))


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


def test_nothing_installed_imports_what_is_not() -> None:
    for path in MODULES:
        tops = {name.split(".")[0] for name in imports(path.read_text(encoding="utf-8"))}
        assert not tops & {"tests", "benchmarks", "audit", "tasks", "flows", "data_contracts"}, relative(path)


def test_the_two_caps_that_prefect_needs_stand() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    dependencies = tomllib.loads(text)["project"]["dependencies"]
    caps = {re.split(r"[<>=]", d)[0]: d for d in dependencies}
    assert caps["fastapi"].endswith("<0.151")
    assert caps["sqlalchemy"].endswith("<2.1")


NAMED = [{"columns": ["age", "region", "happy"]}]
REQUESTS: dict[str, Request] = {
    name: Request(make_spec(**fields))
    for name, fields in {
        "privsyn": {"mechanism": "privsyn"},
        "adaptive": {"mechanism": "adaptive"},
        "adaptive in three rounds": {"mechanism": {"name": "adaptive", "rounds": 3}},
        "independent": {"mechanism": "independent"},
        "mst": {"mechanism": "mst"},
        "privbayes": {"mechanism": "privbayes"},
        "aim": {"mechanism": "aim"},
        "prior": mechanism_fields("prior"),
        "paper": {"preset": "paper"},
        "named sets": {"workload": NAMED},
        "named sets, adaptive": {"workload": NAMED, "mechanism": "adaptive"},
        "named sets, aim": {"workload": NAMED, "mechanism": "aim"},
    }.items()
}
"""Every mechanism, with the numbers of rounds and the preset that change its steps."""

every_mechanism = pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)


@every_mechanism
def test_every_declared_input_is_an_earlier_steps_output(request_: Request) -> None:
    assert unmade(build_steps(request_)) == []


def unmade(steps: Sequence[Step]) -> list[str]:
    """The declared inputs that no earlier step makes, and names of steps that an earlier step has."""
    made: set[str] = set()
    missing = []
    for step in steps:
        missing += [f"{step.name} <- {name}" for name in step.inputs if name not in made]
        missing += [step.name] if any(name.split(".")[0] == step.name for name in made) else []
        made |= {f"{step.name}.{table}" for table in step.outputs}
    return missing


def test_an_input_that_comes_too_late_and_a_name_given_twice_are_found() -> None:
    assert unmade([STEPS[1], STEPS[0]]) == ["one_way_marginals <- encode.encoded_rows"]
    assert unmade([STEPS[0], STEPS[0]]) == ["encode"]


@every_mechanism
def test_every_kind_keeps_its_rules(request_: Request) -> None:
    assert broken_rules(build_steps(request_), request_) == []


def mutants() -> dict[str, Step]:
    """Steps of the default mechanism that each break one rule; every one keeps its name."""
    step = {step.name: step for step in STEPS}
    measure = get_step(release_steps(STEPS), "measure_marginals")
    return {
        "post-processing that reads private rows": replace(
            step["select_pairs"], inputs=(*step["select_pairs"].inputs, "recode_rows.recoded_rows")
        ),
        "a transformation whose output is released": replace(
            step["encode"], outputs={**step["encode"].outputs, "repairs": tables.RECODE}
        ),
        "a transformation that publishes": replace(step["encode"], published=step["compress_domain"].published),
        "a release step by its kind only": replace(step["decode"], kind=StepKind.RELEASE),
        "a release step of another kind": replace(measure, kind=StepKind.POSTPROCESS),
        "a release without a look": replace(measure, look=None),
        "a look without words": replace(measure, look=replace(measure.look, counted="")),
        "a look without a reason": replace(measure, look=replace(measure.look, reason=lambda request: "")),
        "a release whose receipts are something else": replace(
            measure, outputs={**measure.outputs, "receipts": tables.MARGINALS}
        ),
        "a release of a table without receipts": replace(
            measure, outputs={**measure.outputs, "more": tables.MARGINALS}
        ),
        "a release that is not published": replace(measure, published={}),
        "a release whose receipts are not published": replace(measure, published={"noisy": measure.published["noisy"]}),
        "a release that counts rows it did not declare": replace(measure, rows="decode.synthetic"),
        "a release that could look by a step of its own": replace(measure, run=step["decode"].run),
    }


@pytest.mark.parametrize("mutant", mutants().values(), ids=mutants())
def test_a_step_that_breaks_a_rule_is_found(mutant: Step) -> None:
    assert broken_rules([mutant if step.name == mutant.name else step for step in STEPS]) == [mutant.name]


def broken_rules(steps: Sequence[Step], request: Request = REQUESTS["privsyn"]) -> list[str]:
    """Steps of ``request`` that break the rules of their kind.

    Only a release step turns private into released: it has a look with words and a reason, receipts, and files for
    both of its tables.  A transformation publishes nothing; post-processing reads released tables only.
    """
    zones = {f"{step.name}.{name}": contract.zone for step in steps for name, contract in step.outputs.items()}
    broken = []
    for step in steps:
        reads = {zones[name] for name in step.inputs} or {Zone.PRIVATE}  # the first step reads the private table
        makes = {contract.zone for contract in step.outputs.values()}
        fine = {
            StepKind.TRANSFORM: makes == {Zone.PRIVATE} and not step.published,
            StepKind.RELEASE: Zone.PRIVATE in reads and makes == {Zone.RELEASED} and is_receipted(step, zones, request),
            StepKind.POSTPROCESS: reads == {Zone.RELEASED} == makes,
        }
        if not fine[step.kind] or isinstance(step, ReleaseStep) != (step.kind is StepKind.RELEASE):
            broken.append(step.name)
    return broken


def is_receipted(step: Step, zones: Mapping[str, Zone], request: Request) -> bool:
    """Whether a release step says what it looks at and why at this price, and publishes all that follows from it."""
    return (
        isinstance(step, ReleaseStep)
        and isinstance(step.look, LookDescription)
        and bool(step.look.words)
        and bool(say(step.look.reason, request))
        and step.outputs == {"noisy": tables.NOISY, "receipts": tables.RECEIPTS}
        and step.published.keys() == step.outputs.keys()
        and step.rows in step.inputs
        and zones[step.rows] is Zone.PRIVATE
        and step.run is None
    )


@every_mechanism
def test_the_shares_are_positive_and_sum_to_the_whole_budget_exactly(request_: Request) -> None:
    steps = release_steps(build_steps(request_))
    shares = [step.share for step in steps]
    assert all(isinstance(share, Fraction) and share > 0 for share in shares)
    assert sum(shares) == 1
    assert sum(step.rho(request_) for step in steps) == request_.total_rho


@pytest.mark.parametrize("factor", [Fraction(1) + Fraction(1, 10**12), Fraction(1) - Fraction(1, 10**12), Fraction(0)])
@every_mechanism
def test_a_mechanism_whose_shares_are_not_the_budget_is_refused(
    request_: Request, factor: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:

    def mutant(request: Request) -> dict[str, Fraction]:
        *shares, (last, share) = split_budget(request).items()
        return {**dict(shares), last: share * factor}

    monkeypatch.setattr(registry, "split_budget", mutant)
    with pytest.raises(ValueError, match="must sum to 1"):
        build_steps(request_)


def test_shares_that_sum_to_1_with_one_below_0_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def mutant(request: Request) -> dict[str, Fraction]:
        return dict(zip(split_budget(request), (Fraction(3, 2), Fraction(-1), Fraction(1, 2)), strict=True))

    monkeypatch.setattr(registry, "split_budget", mutant)
    with pytest.raises(ValueError, match="must sum to 1"):
        build_steps(REQUESTS["privsyn"])
    # A mechanism without a look is refused.
    free = tuple(step for step in STEPS if step.kind is not StepKind.RELEASE)
    monkeypatch.setitem(registry.MECHANISMS, "privsyn", lambda request: free)
    with pytest.raises(ValueError, match="must sum to 1"):
        build_steps(REQUESTS["privsyn"])


@every_mechanism
def test_no_two_tables_are_published_under_one_name(request_: Request) -> None:
    steps = build_steps(request_)
    names = [file.name for step in steps for file in step.published.values()]
    assert len(set(names)) == len(names) > 0
    assert all(re.fullmatch(r"marginals/[a-z0-9_]+\.parquet", name) for name in names)
    zones = {f"{step.name}.{name}": contract.zone for step in steps for name, contract in step.outputs.items()}
    assert {zones[f"{step.name}.{table}"] for step in steps for table in step.published} == {Zone.RELEASED}


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
"""Calls that write a file without Python's own `open`: tests/support/faults.py must wrap each place by hand."""

WRAPPED = {
    ("privsyn/storage/table_files.py", "ParquetWriter"),
    ("privsyn/publish/formats/tables.py", "ParquetWriter"),
    ("privsyn/storage/records.py", "write_table"),
    ("privsyn/api/rehearsal.py", "write_table"),
}
"""(module, call) that it wraps."""


def test_every_write_that_python_does_not_see_is_one_that_the_fault_tests_wrap() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in MODULES}
    found = {
        (path.relative_to(ROOT).as_posix(), node.func.attr)
        for path, text in texts.items()
        if any(name in text for name in UNSEEN_WRITES)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in UNSEEN_WRITES
        and ast.unparse(node.func.value) not in ("self.store", "store")
    }
    assert found == WRAPPED


def test_a_module_that_runs_as_a_program_starts_at_its_end() -> None:
    for path in MODULES:
        body = ast.parse(path.read_text(encoding="utf-8")).body
        starts = [
            node for node in body if isinstance(node, ast.If) and ast.unparse(node.test).startswith("__name__ ==")
        ]
        assert all(node is body[-1] for node in starts), f"{path}: what stands below is not defined yet"
