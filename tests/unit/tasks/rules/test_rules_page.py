"""docs/rules.md: every example is released, and no row of it breaks a rule."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import privsyn
from privsyn.specs.yaml_file import parse_yaml
from privsyn.tasks.codecs import plan, plan_every_column
from tests.support.examples import keep_first
from tests.support.specs import make_spec

PAGE = (Path(__file__).parents[4] / "docs" / "rules.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("text", keep_first(EXAMPLES, 4), ids=lambda text: text.split(":")[1].strip())
def test_no_released_row_breaks_a_rule(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVSYN_LEDGER", str(tmp_path / "ledger.sqlite"))
    content: dict[str, Any] = dict(parse_yaml(text, "the example").content)
    spec = make_spec(content["columns"], rules=content["rules"], data="")
    rng = np.random.default_rng(1)
    columns = plan_every_column(spec)  # private rows of any kind: most of them break the rules
    private = pa.table(columns.decode({c.attribute: rng.integers(c.size, size=1500) for c in columns.codecs}, rng))
    release = privsyn.release(private, spec, out=tmp_path)
    rules = plan(spec).rules
    assert rules is not None
    table = {name: release.table[name].combine_chunks() for name in release.table.column_names}
    assert release.table.num_rows > 1000
    assert not rules.find_broken_rows(table).any()
    assert not any(rows.any() for rows in rules.find_differing_rows(table).values())
