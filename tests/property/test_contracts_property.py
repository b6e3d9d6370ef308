"""Contracts on random specs and tables: what the steps make passes, and any single corruption is caught."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privsyn.base.errors import ContractError
from privsyn.data_contracts import tables
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.mechanism_options import Compression
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.step_tables import check_stage, check_table
from privsyn.tasks.codecs import plan
from privsyn.tasks.codecs.encode_rows import Repairs, encode_batch
from privsyn.tasks.estimation import noisy
from privsyn.tasks.estimation.recode import build_coarse_domain, recode_to_table
from privsyn.tasks.steps import compress_domain, measure_marginals
from tests.support.examples import choose_example_count
from tests.support.specs import anything, specs

SLOW = settings(max_examples=choose_example_count(25), deadline=None, suppress_health_check=list(HealthCheck))


def table_for(spec: ReleaseSpec, data: st.DataObject) -> pa.RecordBatch:
    """A random table with the spec's columns, of any types and values."""
    arrays = {name: data.draw(anything) for name in spec.released_columns}
    rows = min(len(a) for a in arrays.values())
    return pa.record_batch([a.slice(0, rows) for a in arrays.values()], names=list(arrays))


@SLOW
@given(specs, st.data())
def test_what_the_first_steps_make_passes(spec: ReleaseSpec, data: st.DataObject) -> None:
    encoding, repairs = plan(spec), Repairs()
    codes = encode_batch(table_for(spec, data), encoding, repairs)
    check_table(tables.ENCODED_ROWS, tables.make_code_profile([codes], encoding.domain))
    check_table(tables.REPAIRS, repairs.to_table())
    rho = Fraction(1, 50)
    queries = measure_marginals.plan_one_ways(encoding.domain, rho, spec.unit.records)
    check_stage("one_way_marginals", queries, rho)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    answers = [np.round(rng.normal(0, q.sigma, q.cells)).astype(np.int64) for q in queries]
    check_table(tables.NOISY, noisy.tabulate_answers(answers))
    check_table(tables.RECEIPTS, noisy.tabulate_receipts(queries))
    recode = compress_domain.compress_domain(answers, queries, encoding.binning, Compression())
    check_table(tables.RECODE, recode_to_table(recode, encoding.labels()))
    coarse = build_coarse_domain(recode)
    rows = list(compress_domain.recode_rows([codes], recode))
    check_table(tables.RECODED_ROWS, tables.make_code_profile(rows, coarse, padded=True))


@SLOW
@given(st.integers(1, 40), st.integers(0, 3), st.data())
def test_any_corruption_of_code_rows_is_caught(size: int, kind: int, data: st.DataObject) -> None:
    domain = Domain(("x", "y"), (size, 7))
    codes = data.draw(st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, 6)), min_size=1, max_size=20))
    x, y = (list(column) for column in zip(*codes, strict=True))
    at = data.draw(st.integers(0, len(x) - 1))
    columns = {"x": pa.array(x, pa.uint8()), "y": pa.array(y, pa.uint8())}
    check_table(tables.SYNTHETIC_CODES, tables.make_code_profile([pa.record_batch(columns)], domain))
    if kind == 0:  # a code outside the domain
        columns["x"] = pa.array([*x[:at], data.draw(st.integers(size, 255)), *x[at + 1 :]], pa.uint8())
    elif kind == 1:  # a null
        columns["y"] = pa.array([*y[:at], None, *y[at + 1 :]], pa.uint8())
    elif kind == 2:  # another type
        columns["x"] = columns["x"].cast(pa.int64())
    else:  # another order
        columns = {"y": columns["y"], "x": columns["x"]}
    with pytest.raises(ContractError) as caught:
        check_table(tables.SYNTHETIC_CODES, tables.make_code_profile([pa.record_batch(columns)], domain))
    assert caught.value.failures


@SLOW
@given(st.integers(1, 6), st.fractions(Fraction(1, 1000), Fraction(10)), st.sampled_from([Fraction(1, 2), Fraction(2)]))
def test_a_stage_that_does_not_cost_its_budget_is_caught(attributes: int, rho: Fraction, factor: Fraction) -> None:
    domain = Domain(tuple(f"a{i}" for i in range(attributes)), (3,) * attributes)
    queries = measure_marginals.plan_one_ways(domain, rho, 2)
    check_stage("stage", queries, rho)
    with pytest.raises(ContractError):
        check_stage("stage", queries, rho * factor)
