"""The field ``levels``: values of a column in public groups, counted level by level."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

import privsyn
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.request import Request
from privsyn.pipelines.common_steps import ENCODE
from privsyn.specs.yaml_file import parse_yaml
from privsyn.tasks.codecs import plan
from privsyn.tasks.codecs.cells import AttributeBins, Level
from privsyn.tasks.codecs.encode_rows import Repairs, encode_batch
from privsyn.tasks.estimation.recode import compress_attribute, recode_from_table
from tests.support.specs import make_spec

PAGE = (Path(__file__).parents[4] / "docs" / "columns.md").read_text(encoding="utf-8")
EXAMPLE = re.search(r"## Very many values.*?```yaml\n(.*?)```", PAGE, re.DOTALL)
assert EXAMPLE is not None
CONTENT: dict[str, Any] = dict(parse_yaml(EXAMPLE[1], "the example").content)
STREETS = CONTENT["columns"]["street"]["values"]
COUNTIES = {street: county for street, _, county in CONTENT["rules"][0]["lookup"]["rows"]}


def example(**street: Any) -> ReleaseSpec:
    columns = {**CONTENT["columns"], "street": {**CONTENT["columns"]["street"], **street}}
    return make_spec(columns, rules=CONTENT["rules"], data="")


def rows(many: int) -> pa.Table:
    rng = np.random.default_rng(3)
    streets = rng.choice(STREETS, many, p=[0.5, 0.02, 0.2, 0.03, 0.15, 0.1])
    return pa.table(
        {
            "street": streets,
            "state": rng.choice(["NJ", "NY"], many),  # private rows need not follow the rules
            "county": [COUNTIES[street] for street in streets],
            "calls": rng.integers(0, 10, many),
        }
    )


def test_counts_of_a_release_agree_level_by_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVSYN_LEDGER", str(tmp_path / "ledger.sqlite"))
    release = privsyn.release(rows(3000), example(), out=tmp_path)
    recode = recode_from_table(pq.read_table(release.folder / "marginals" / "recode.parquet"))
    for level in plan(example()).binning["street"].levels:
        sums = np.bincount(level.groups, weights=recode["street"].estimate)
        assert np.allclose(sums, recode[level.attribute].estimate)
    made = release.table.to_pandas()
    known = made.dropna(subset=["street"])
    assert (known["street"].map(COUNTIES) == known["county"]).all()
    kings = rows(3000).to_pandas()["county"].eq("Kings").mean()
    assert abs(made["county"].eq("Kings").mean() - kings) < 0.1
    (asked,) = release.count(where="county == 'Kings'").to_dict("records")
    assert abs(asked["estimate"] - kings * 3000) < 6 * asked["std_error"], asked


def test_rare_values_share_a_code_with_their_own_group_only() -> None:
    noisy = np.array([900, 5, 40, 2, 60, 50, 20, 15, 3, 1], dtype=np.int64)
    county = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2, 2])
    groups = np.arange(10, dtype=np.int32)
    settings = example().mechanism.compression
    levels = Level("state", np.array([0] * 6 + [1] * 4)), Level("county", county)
    found = compress_attribute(noisy, 10.0, AttributeBins(groups, levels=levels), settings)
    assert found.coarse.tolist() == [0, 5, 1, 5, 2, 3, 4, 4, 4, 4], "7 of one state are too few"
    sums = np.bincount(found.coarse, weights=found.weight)
    assert np.allclose(sums, 1)


def test_another_public_table_counts_again_only_where_levels_need_it() -> None:
    moved = [{"lookup": {**CONTENT["rules"][0]["lookup"], "rows": [*CONTENT["rules"][0]["lookup"]["rows"]]}}]
    moved[0]["lookup"]["rows"][0] = ["Ash Rd", "NY", "Queens"]

    def keys(levels: list[str]) -> list[Any]:
        columns = {**CONTENT["columns"], "street": {**CONTENT["columns"]["street"], "levels": levels}}
        specs = [make_spec(columns, rules=rules, data="") for rules in (CONTENT["rules"], moved)]
        return [ENCODE.build_key(Request(spec, tuple(spec.released_columns))) for spec in specs]

    with_levels, without = keys(["county"]), keys([])
    assert with_levels[0] != with_levels[1]
    assert without[0] == without[1]


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        (["town"], "there is no released column 'town'"),
        (["calls"], "'calls' does not follow from 'street' alone"),
        (["county", "county"], "names a column twice"),
    ],
)
def test_levels_that_are_not_computed_are_refused(levels: list[str], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        example(levels=levels)


def test_levels_need_a_measured_column_and_names_of_their_own() -> None:
    columns = {**CONTENT["columns"], "county": {**CONTENT["columns"]["county"], "levels": ["state"]}}
    with pytest.raises(ValidationError, match="computed by a rule"):
        make_spec(columns, rules=CONTENT["rules"])
    with pytest.raises(ValidationError, match="has the name that counts of `levels` need"):
        make_spec({**CONTENT["columns"], "street (in state)": {"kind": "boolean"}}, rules=CONTENT["rules"])


def test_a_level_is_an_attribute_of_groups_inside_groups() -> None:
    encoding = plan(example())
    assert encoding.domain.attributes == ("street", "calls", "street (in state)", "street (in county)")
    assert encoding.labels()["street (in county)"] == [
        "(null), (null)",
        "NJ, Bergen",
        "NJ, Essex",
        "NY, Kings",
        "NY, Queens",
    ]
    (batch,) = rows(50).to_batches()
    codes = dict(zip(encoding.domain.attributes, encode_batch(batch, encoding, Repairs()).columns, strict=True))
    labels = [encoding.labels()["street (in county)"][c] for c in codes["street (in county)"].to_pylist()]
    assert [label.split(", ")[1] for label in labels] == batch["county"].to_pylist()
    assert encoding.attributes_of(["street"]) == ("street",)
