"""anonymeter's attacks: what its process is given, what becomes of its answer, and that nothing it says gets out."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.evaluation import EvaluationSpec, Metric
from privsyn.evaluation.anonymeter_attacks import run_attacks
from privsyn.evaluation.coded_tables import CodedTable, encode_table
from privsyn.evaluation.scores import BY_ANONYMETER, Scorer
from privsyn.tasks.codecs import plan
from privsyn.tasks.kernels.counting import CodeTable
from tests.support.specs import make_spec, people

ANSWER = """
import io, json, sys
import numpy as np
given = np.load(io.BytesIO(sys.stdin.buffer.read()))
rows, columns = given["real"].shape
assert given["holdout_bins"].shape == (rows, columns) and rows == given["attacks"], "fewest rows"
assert given["synthetic"].shape == (200, columns)
risk = {"risk": 0.25, "low": 0.125, "high": 0.5, "attack": 0.75, "control": rows / 1000}
print(json.dumps({"singling_out": risk, "linkability": None, "inference": {**risk, "column": columns - 1}}))
"""


def interpreter(folder: Path, program: str) -> Path:
    """An interpreter that runs this program, whatever it is asked to run."""
    (folder / "program.py").write_text(program, encoding="utf-8")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{folder}/program.py"\n', encoding="utf-8")
    python.chmod(0o755)
    return python


def score(python: Path | None, *, holdout: bool = True) -> dict[str, Metric]:
    encoding = plan(make_spec())
    real, later, made = (encode_table(people(n, seed=n).to_batches(), encoding) for n in (300, 15, 200))
    spec = EvaluationSpec(attack_rows=100)
    scorer = Scorer(real, later if holdout else None, encoding, spec, threads=1, anonymeter=python)
    return {m.name: m for m in scorer.score(made, BY_ANONYMETER)}


def test_each_attack_has_its_risk_and_interval(tmp_path: Path) -> None:
    found = score(interpreter(tmp_path, ANSWER))
    out = found["singling_out"]
    assert (out.value, out.group) == (0.25, "attacks")
    assert out.references == {"95 % from": 0.125, "to": 0.5, "success": 0.75, "on hold-out rows": 0.015}
    assert found["inference"].note.endswith(f": {plan(make_spec()).domain.attributes[-1]}")
    assert (found["linkability"].value, found["linkability"].note) == (None, "anonymeter could not make the attack")


def test_without_an_interpreter_there_are_no_such_attacks() -> None:
    assert score(None) == {}


def test_without_a_hold_out_no_row_is_handed_over(tmp_path: Path) -> None:
    called = tmp_path / "called"
    found = score(interpreter(tmp_path, f"open({str(called)!r}, 'w')"), holdout=False)
    assert {m.value for m in found.values()} == {None} and all("hold-out" in m.note for m in found.values())
    assert not called.exists()


@pytest.mark.parametrize("program", ["import sys; sys.exit('the wage 41976')", None])
def test_what_a_process_that_fails_says_is_in_no_note(program: str | None, tmp_path: Path) -> None:
    found = score(interpreter(tmp_path, program) if program else tmp_path / "none")
    assert {m.value for m in found.values()} == {None}
    assert all(m.note and "41976" not in m.note for m in found.values())


@pytest.mark.skipif("PRIVSYN_ANONYMETER" not in os.environ, reason="needs an interpreter with anonymeter")
def test_copies_of_real_rows_are_found_and_other_rows_of_the_same_kind_are_not() -> None:
    domain = Domain.of({"a": 24, "b": 24, "c": 3, "d": 70})

    def draw(seed: int) -> CodedTable:
        rng = np.random.default_rng(seed)
        first = rng.integers(0, 24, 1_000)
        others = ((first + rng.integers(0, 5, 1_000)) % 24, rng.integers(0, 3, 1_000), rng.integers(0, 70, 1_000))
        table = CodeTable(domain, tuple(c.astype(np.uint8) for c in (first, *others)))
        return CodedTable(table, table)

    python = Path(os.environ["PRIVSYN_ANONYMETER"])
    for synthetic, leaks in ((draw(0), True), (draw(2), False)):
        tables = {"real": draw(0), "holdout": draw(1), "synthetic": synthetic}
        found = run_attacks(python, tables, [True, True, False, True], 200, 0)
        assert not isinstance(found, str)
        risks = [found[name] for name in ("singling_out", "inference")]
        assert all(risk is not None and (risk["low"] > 0) == leaks for risk in risks)
