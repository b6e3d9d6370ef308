"""Snapshots by which moved code is seen to do what it did, and the use of what earlier versions left behind.

Belongs here: every import of the project that these tests need, what a snapshot holds, and writing all of them anew:
``python -m tests.support.snapshots --write``.  Does not belong here: assertions (tests/architecture/test_snapshots.py,
tests/flows/test_redraw_of_earlier_versions.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

import privsyn.cli as command_line
from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.keys import compute_lineage_keys, name_request
from privsyn.engine.request import Request
from privsyn.pipelines.registry import plan_release
from privsyn.specs.spec_file import load_spec
from privsyn.storage.store import Store
from privsyn.tasks.privacy.noise import OpenDPNoise, SeededNoise
from tests.support.places import FIXTURES, ROOT
from tests.support.releases import release_in_process

SNAPSHOTS = ROOT / "tests" / "snapshots"
WRITE = "python -m tests.support.snapshots --write"

# specs and a table of their own, so that no other test's change is taken for a change of the code

COLUMNS: dict[str, Any] = {
    "age": {"kind": "integer", "min": 18, "max": 89, "bins": 12, "nullable": True},
    "income": {"kind": "number", "min": 0, "max": 100_000, "edges": [0, 10_000, 25_000, 50_000, 100_000]},
    "region": {"kind": "categorical", "values": ["north", "south", "east"], "unlisted": "other"},
    "happy": {"kind": "boolean"},
    "person": {"kind": "drop"},
}
EVERY_KIND: dict[str, Any] = {
    "age": {"kind": "integer", "min": 18, "max": 89, "description": "in years", "unit": "years"},
    "children": {"kind": "integer", "min": 0, "max": 12, "type": "int16", "nullable": True},
    "income": {"kind": "number", "min": 0, "max": 100_000, "bins": 20, "decimals": 2},
    "weight": {"kind": "number", "min": 0.5, "max": 250.5, "nullable": True},
    "seen": {"kind": "datetime", "min": "2010-01-01", "max": "2020-01-01", "bins": 40},
    "born": {"kind": "datetime", "min": "1900-01-01", "max": "2010-01-01", "bins": 11, "resolution": "day"},
    "region": {"kind": "categorical", "values": ["north", "south", "east"], "unlisted": "other"},
    "code": {"kind": "categorical", "values": [1, 2, 3, 5, 8]},
    "happy": {"kind": "boolean"},
    "married": {"kind": "boolean", "nullable": True},
    "person": {"kind": "drop"},
}
CONTENTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "paper": {"preset": "paper"},
    "rows": {"synthesis": {"seed": 7, "rows": 500, "shard_rows": 200}, "formats": ["parquet", "csv"]},
    "persons": {"unit": {"person_id": "person", "max_records": 3}, "null_values": ["", "NA", "-9"]},
    "tight": {
        "accountant": "tight",
        "split": {"one_way": 0.3, "selection": 0.1, "measurement": 0.6, "one_ways": "equal"},
        "selection": {"scores": "indif", "combine_cliques": True, "gamma": 900},
    },
    "every_kind": {"columns": EVERY_KIND, "preset": "0.3"},
    "open_bins": {"columns": EVERY_KIND},
    "rounds": {"adaptive": {"rounds": 2, "share": 0.4}},
}
"""Name -> what its spec says beyond the base."""

PERIODS = {"defaults": "2026-11"}
RELEASED = ("defaults", "paper", "rows", "persons", "rounds")
"""The specs of the seeded releases."""


def spec_of(name: str, data: str = "people.parquet") -> ReleaseSpec:
    """One of the specs."""
    return make_spec_of(CONTENTS[name], data)


def make_spec_of(fields: dict[str, Any], data: str = "people.parquet") -> ReleaseSpec:
    """The spec of these fields beyond the base."""
    base = {
        "dataset": "people",
        "data": data,
        "unit": {"records_per_person": 1},
        "privacy": {"epsilon": 2.0, "delta": 1e-9},
        "budget": {"epsilon": 10.0, "delta": 1e-8},
        "columns": COLUMNS,
        "accountant": "paper" if fields.get("preset") == "paper" else "gaussian",  # as where 0.3.0 was told none
    }
    return ReleaseSpec.model_validate({**base, **fields})


def people(rows: int) -> pa.Table:
    """A made-up table for COLUMNS: related columns, some nulls, some people with many records."""
    rng = np.random.default_rng(11)
    age = rng.integers(18, 90, rows)
    income = np.clip((age - 15) * 900 + rng.integers(-9_000, 9_000, rows), 0, 100_000).astype(float)
    region = np.where(age > 50, "north", np.where(rng.random(rows) < 0.5, "south", "west"))
    person = [f"p{i}" for i in rng.integers(0, rows // 2, rows)]
    nulls = rng.random(rows) < 0.1
    columns = {"age": pa.array(age, mask=nulls), "income": income, "region": region, "happy": income > 30_000}
    return pa.table({**columns, "person": person})


# lineage keys and names of requests: what a later version must compute alike, or users pay twice


def lineage() -> dict[str, Any]:
    """Spec -> key of every step and the request's name; with a period too."""
    asked = [*((name, None) for name in CONTENTS), *PERIODS.items()]
    found = {}
    for name, period in asked:
        spec = spec_of(name)
        plan = plan_release(spec, period)
        request = Request(spec, tuple(spec.released_columns))
        found[name if period is None else f"{name} {period}"] = {
            "request": name_request(plan),
            "keys": compute_lineage_keys(request, "00" * 32, 0, OpenDPNoise, plan.steps, period),
        }
    return found


# keys of every mechanism with each kind of public knowledge

MECHANISMS: dict[str, dict[str, Any]] = {
    "privsyn": {},
    "indif": {"selection": {"scores": "indif"}},
    "adaptive": {"mechanism": {"name": "adaptive", "rounds": 2}},
    "independent": {"mechanism": {"name": "independent"}},
    "mst": {"mechanism": {"name": "mst"}},
    "mst by mbi": {"mechanism": {"name": "mst", "rows_by": "mbi"}},
    "privbayes": {"mechanism": {"name": "privbayes"}},
    "aim": {"mechanism": {"name": "aim", "rounds": 3}},
    "prior": {
        "mechanism": {"name": "prior", "group": ["region"]},
        "prior": {"sha256": "1" * 64, "statement": "Rows that anybody may have."},
    },
    "improved": {
        "improves": {"earlier": [{"run": "people-1", "epsilon": 1, "delta": 1e-9}], "epsilon": 1, "delta": 1e-9}
    },
}
"""Mechanism, or a variant of it -> the fields that ask for it."""

_BY_REGION = [{"region": "north", "count": 160}, {"region": "south", "count": 79}, {"region": "other", "count": 61}]
_BY_BOTH = [
    {"region": region, "happy": happy, "count": 40}
    for region in ("north", "south", "east", "other")
    for happy in (False, True)
]
KNOWLEDGE: dict[str, dict[str, Any]] = {
    "nothing": {},
    "prior": {"prior": {"sha256": "2" * 64, "statement": "Rows that anybody may have."}},
    "zeros": {"prior": {"sha256": "2" * 64, "statement": "Rows that anybody may have.", "zeros": True}},
    "totals of rows": {"totals": [{"rows": 300, "statement": "Published by the office in January 2026."}]},
    "totals": {
        "totals": [
            {"columns": ["region"], "counts": _BY_REGION, "statement": "Published by the office in January 2026."}
        ]
    },
    "totals of pairs": {
        "totals": [
            {
                "columns": ["region", "happy"],
                "counts": _BY_BOTH,
                "statement": "Published by the office in January 2026.",
            }
        ]
    },
    "rules": {"rules": [{"never": "age < 20 and happy"}]},
    "together": {"columns": {**COLUMNS, "spent": COLUMNS["income"]}, "together": [["income", "spent"]]},
    "focus": {"focus": {"columns": ["income"], "weight": 3}},
    "workload": {"workload": [{"columns": ["age", "income", "happy"], "weight": 10}]},
    "focus of 0.3": {"preset": "0.3", "focus": {"columns": ["income"], "weight": 3}},
    "workload of 0.3": {"preset": "0.3", "workload": [{"columns": ["age", "income", "happy"], "weight": 10}]},
    "levels": {
        "columns": {
            **COLUMNS,
            "code": {"kind": "categorical", "values": ["a", "b", "c"], "levels": ["first"]},
            "first": COLUMNS["happy"],
        },
        "rules": [{"derive": {"first": "code == 'a'"}}],
    },
    "computed": {"rules": [{"derive": {"happy": "income > 30000"}}]},
}
"""Part of what is public about the rows -> the fields that state it."""


def step_keys() -> dict[str, dict[str, str]]:
    """Mechanism and public knowledge, wherever a spec may have both -> the first digits of every step's key."""
    found = {}
    for (name, asked), (part, told) in itertools.product(MECHANISMS.items(), KNOWLEDGE.items()):
        try:
            spec = make_spec_of({**asked, **told})
        except ValueError:  # a mechanism that knows no use for this part
            continue
        steps = plan_release(spec).steps
        request = Request(spec, tuple(spec.released_columns))
        keys = compute_lineage_keys(request, "00" * 32, 0, OpenDPNoise, steps)
        found[f"{name}: {part}"] = {step: key[:16] for step, key in keys.items()}
    return found


# releases with seeded noise


def releases(home: Path) -> dict[str, dict[str, str]]:
    """Spec -> file -> SHA-256 of a release with SeededNoise(1), made under ``home``."""
    pq.write_table(people(1_000), home / "people.parquet")
    found = {}
    for name in RELEASED:
        settings = Settings(out=home / name, ledger=str(home / f"{name}.sqlite"), threads=2)
        with mock.patch.object(Store, "row_key", b"the same rows of each person"):
            made = release_in_process(spec_of(name, str(home / "people.parquet")), settings, noise=SeededNoise(1))
        files = sorted(path for path in Path(made.released).rglob("*") if path.is_file())
        found[name] = {p.relative_to(made.released).as_posix(): _digest(p, made.run) for p in files}
    return found


def _digest(path: Path, run: str) -> str:
    """SHA-256 without the run's random name; of a manifest without versions and the other files' hashes."""
    content = path.read_bytes().replace(run.encode(), b"RUN")
    if path.name == "certificate.json":  # the ledger's hash covers moments
        content = json.dumps({**json.loads(content), "ledger": "HEAD"}, indent=2).encode()
    if path.name == "manifest.json":
        told = {k: v for k, v in json.loads(content).items() if k not in ("versions", "files")}
        content = json.dumps(told, indent=2).encode()
    return hashlib.sha256(content).hexdigest()


# every table that a release publishes, of each mechanism and unit


def tables() -> dict[str, dict[str, str]]:
    """Case of the referee -> released file -> SHA-256 of its table, made in memory with seeded noise."""
    from tests.support.case_runs import run_cases  # here: most snapshots need no case

    return {name: dict(ran.published) for name, ran in run_cases().items()}


# the JSON of the commands

SPEC = """\
dataset: people
data: people.parquet
unit: {records_per_person: 1}
privacy: {epsilon: 2, delta: 1.0e-9}
budget: {epsilon: 10, delta: 1.0e-8}
columns:
  age: {kind: integer, min: 18, max: 89, bins: 12, nullable: true}
  income: {kind: number, min: 0, max: 100000, bins: 10}
  region: {kind: categorical, values: [north, south, east], unlisted: other}
  happy: {kind: boolean}
  person: {kind: drop}
synthesis: {sweeps: 2}
"""
PUBLIC = {"epsilon", "delta", "rho", "sigma", "compared", "id", "n", "runs", "done"}
PUBLIC |= {"datasets", "entries", "certificates", "schema_version"}
"""Numbers under these names follow from the request alone; of others the shape is kept."""


def answers(home: Path) -> dict[str, Any]:
    """Command -> the shape of its JSON, after one release under ``home``."""
    pq.write_table(people(300), home / "people.parquet")
    (home / "people.yaml").write_text(SPEC, encoding="utf-8")
    (home / "settings.yaml").write_text("{range_queries: 20, nist_schemas: 5, nist_queries: 5}\n", encoding="utf-8")
    spec = home / "people.yaml"
    with _environment(home):
        run = release_in_process(load_spec(spec), Settings()).run
        period = release_in_process(load_spec(spec), Settings(), period="2026-11").run
        told = {}
        for name, arguments in {
            "release": ("release", spec, "--json"),
            "release --period": ("release", spec, "--period", "2026-11", "--json"),
            "evaluate": ("evaluate", run, "--settings", home / "settings.yaml", "--json"),
            "evaluate --epsilon-report": ("evaluate", run, "--epsilon-report", "0.5", "--json"),
            "compare": ("compare", spec, "--methods", "independent", "--epsilons", "1", "--seeds", "1", "--json"),
            "rerun": ("rerun", run, "--json"),
            "formats": ("formats", run, "--to", "csv", "--json"),
            "ledger show": ("ledger", "show", "--json"),
            "ledger show DATASET": ("ledger", "show", "people", "--json"),
            "ledger verify": ("ledger", "verify", "--json"),
            "ledger export": ("ledger", "export"),
            "spec json": ("spec", "json", spec),
        }.items():
            result = CliRunner().invoke(command_line.app, [str(a) for a in arguments])
            if result.exit_code:
                raise AssertionError(f"privsyn {name}: {result.output}")
            answer = json.loads(_text(result.stdout, home))
            told[name] = answer if name == "spec json" else _shape(answer, home, run, period)
    return told


@contextlib.contextmanager
def _environment(home: Path) -> Iterator[None]:
    """Both zones, the ledger and Prefect's files under ``home``."""
    before = dict(os.environ)
    try:
        for name in [name for name in os.environ if name.startswith(("PRIVSYN_", "PREFECT_API"))]:
            del os.environ[name]
        os.environ.update(
            PRIVSYN_OUT=str(home / "out"), PRIVSYN_LEDGER=str(home / "ledger.sqlite"), DO_NOT_TRACK="1", NO_COLOR="1"
        )
        with mock.patch("privsyn.server.environment.is_server_configured", lambda: False):
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _shape(value: Any, home: Path, *runs: str, name: str = "") -> Any:
    """The value with all that differs from run to run replaced by what it is."""
    if isinstance(value, dict):
        return {k: _shape(v, home, *runs, name=k) for k, v in value.items()}
    if isinstance(value, list):
        shapes = [_shape(v, home, *runs, name=name) for v in value]
        return [shape for i, shape in enumerate(shapes) if shape not in shapes[:i]]
    if isinstance(value, str):
        return _text(value, home, *runs)
    if name == "seconds":
        return 0
    if value is None or isinstance(value, bool) or name in PUBLIC:
        return value
    return "a whole number" if isinstance(value, int) else "a number"


def _text(value: str, home: Path, *runs: str) -> str:
    for run in sorted(runs, key=len, reverse=True):
        value = value.replace(run, "RUN")
    value = value.replace(str(home), "PATH")
    value = re.sub(r"RUN-quality-[0-9a-f]{8}", "RUN-quality", value)
    value = re.sub(r"PATH/out/private/compare/[^/\"]+", "PATH/out/private/compare/RUN", value)
    value = re.sub(r"\b[0-9a-f]{64}\b", "SHA-256", value)
    value = re.sub(r"\b[0-9a-f]{32}\b", "IDENTITY", value)
    return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?", "TIME", value)


# what earlier versions left


def copied(version: str, place: Path) -> Path:
    """A copy of a fixture at ``place``, whose private records say that they lie there."""
    home = Path(shutil.copytree(FIXTURES / version, place / version))
    private = home / "out" / "private"
    for path in private.rglob("*.json"):
        path.write_text(path.read_text(encoding="utf-8").replace("@HOME@", str(home)), encoding="utf-8")
    for path in private.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return home


def settings_of(home: Path) -> Settings:
    """Both zones and the ledger of a copy."""
    return Settings(out=home / "out", ledger=str(home / "ledger.sqlite"), threads=2)


def bytes_of(folder: Path) -> dict[str, str]:
    """File -> SHA-256 of all under ``folder``."""
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


# reading and writing


def _in_a_folder(make: Callable[[Path], Any]) -> Callable[[], Any]:
    def made() -> Any:
        with tempfile.TemporaryDirectory() as name:
            return make(Path(name).resolve())

    return made


MAKERS: dict[str, Callable[[], Any]] = {
    "lineage": lineage,
    "step_keys": step_keys,
    "releases": _in_a_folder(releases),
    "tables": tables,
    "json": _in_a_folder(answers),
}
"""Snapshot -> what makes it."""


def kept(name: str) -> Any:
    """A snapshot as it was written."""
    return json.loads((SNAPSHOTS / f"{name}.json").read_text(encoding="utf-8"))


def made(name: str) -> Any:
    """A snapshot made now, as JSON has it."""
    return json.loads(json.dumps(MAKERS[name]()))


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] != ["--write"]:
        raise SystemExit(f"usage: {WRITE} [{' | '.join(MAKERS)} ...]")
    for name in sys.argv[2:] or MAKERS:
        _write(SNAPSHOTS / f"{name}.json", MAKERS[name]())
