"""A package of another author adds a connector, a method and a metric through the registry; nothing here knows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.places import ROOT

OUTSIDER = '''
import pyarrow as pa
from privsyn.evaluation.comparison.method import Method, MethodResult
from privsyn.evaluation.scores import AddedMetric, MetricValue, ScoreKind
from privsyn.sources.reader import Connector, Reader
from privsyn.tasks.kernels.counting import CodeTable


class LinesReader(Reader):
    """Tables of one column, a value a line."""

    schema = pa.schema([("colour", pa.string())])

    def __init__(self, path):
        self._values = path.read_text().split()

    def read(self, columns, batch_rows, note):
        yield pa.record_batch([pa.array(self._values)], schema=self.schema).select(list(columns))


def repeat_first_code(trial):
    """Make as many rows as there are of every column's first value: it looks at nothing else."""
    fine = CodeTable(trial.rows.domain, tuple(c * 0 for c in trial.rows.columns))
    return MethodResult(trial.to_bins(fine), fine)


LINES = Connector(lambda place, columns: LinesReader(place))
METHODS = (Method("first-code", "First code", "the first value for everybody", "nowhere", repeat_first_code),)
KIND = ScoreKind("Rows", "structure", "share", 0, None, "higher", "nowhere", "Rows for each real row.")
ROWS = AddedMetric(KIND, lambda scorer, table: MetricValue(table.bins.rows / scorer.real.bins.rows))
'''
ENTRY_POINTS = """
[privsyn.connectors]
.lines = outsider:LINES
[privsyn.methods]
outsider = outsider:METHODS
[privsyn.metrics]
row_number = outsider:ROWS
"""
SPEC = """
dataset: colours
data: table.lines
unit: {records_per_person: 1}
privacy: {epsilon: 1.0, delta: 1.0e-9}
budget: {epsilon: 10, delta: 1.0e-8}
columns: {colour: {kind: categorical, values: [red, green, blue]}}
"""


def test_a_package_of_thirty_lines_adds_a_connector_a_method_and_a_metric(tmp_path: Path) -> None:
    assert len([line for line in OUTSIDER.splitlines() if line]) <= 30
    metadata = tmp_path / "site" / "outsider-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: outsider\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    (tmp_path / "site" / "outsider.py").write_text(OUTSIDER, encoding="utf-8")
    (tmp_path / "table.lines").write_text("red\ngreen\n" * 50, encoding="utf-8")
    (tmp_path / "spec.yaml").write_text(SPEC, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "privsyn.cli",
        "compare",
        "spec.yaml",
        "--methods",
        "first-code",
        "--epsilons",
        "1",
    ]
    done = subprocess.run(
        [*command, "--seeds", "1", "--json", "--out", "out"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "out" / "private" / "compare").iterdir()
    (run,) = json.loads((folder / "results.json").read_text(encoding="utf-8"))["runs"]
    assert run["method"] == "first-code" and run["outcome"] == "done"
    values = {metric["name"]: metric["value"] for metric in run["metrics"]}
    assert values["row_number"] == 1.0
    assert values["l1_1way"] == 1.0  # half of the rows are green and became red
