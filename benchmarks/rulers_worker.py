"""One ruler of others laid on one table, in the ruler's own environment: ``python rulers_worker.py RULER FOLDER``.

sdnist: FOLDER holds ``made.csv`` and ``data/`` (what SDNist would download); it gets SDNist's report in ``report/``.
sdmetrics, synmeter: FOLDER holds ``real.parquet``, ``made.parquet`` and ``metadata.json``; it gets ``judged.json``.
synmeter is code of a clone that SYNMETER_SOURCE names.
Exit code 3: the ruler is not installed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import MagicMock

NOT_INSTALLED = 3
SYNMETER_ROWS = 1_000
"""Rows of each table that SynMeter compares; its own 3,000 take minutes a table."""


def judge_by_sdnist(folder: Path) -> None:
    """Write SDNist's report of made.csv against its national2019."""
    import matplotlib as mpl

    mpl.use("Agg")
    from sdnist.load import TestDatasetName
    from sdnist.report.__main__ import run

    report = folder / "report"
    report.mkdir()
    run(folder / "made.csv", report, TestDatasetName.national2019, folder / "data", download=False, show_report=False)


def judge_by_sdmetrics(folder: Path) -> None:
    """Write the scores of SDMetrics' quality and diagnostic reports, and of the properties below them."""
    import pandas as pd
    from sdmetrics.reports.single_table import DiagnosticReport, QualityReport

    metadata = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))
    real, made = (pd.read_parquet(folder / f"{name}.parquet") for name in ("real", "made"))
    judged = {}
    for name, report in (("quality", QualityReport()), ("diagnostic", DiagnosticReport())):
        report.generate(real, made, metadata, verbose=False)
        judged[name] = float(report.get_score())
        judged |= {row.Property: float(row.Score) for row in report.get_properties().itertuples()}
    (folder / "judged.json").write_text(json.dumps(judged), encoding="utf-8")


def judge_by_synmeter(folder: Path) -> None:
    """Write SynMeter's fidelity, its mean and its parts: total variation and Wasserstein distances.

    It has no null: that of a listed column is a value of its own, and numbers that can be null are left out.  torch is
    imported there, and not used.
    """
    source = os.environ.get("SYNMETER_SOURCE")
    if not source:
        raise ImportError("SYNMETER_SOURCE names no clone of zealscott/SynMeter")
    sys.path.append(source)
    sys.modules |= {name: MagicMock() for name in ("torch", "torch.nn")}
    import pandas as pd
    from evaluator.fidelity.wasserstein import cal_fidelity

    kinds = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))["columns"]
    tables = [pd.read_parquet(folder / f"{name}.parquet") for name in ("real", "made")]
    kept = [c for c, k in kinds.items() if k["sdtype"] == "categorical" or not tables[0][c].isna().any()]
    values = {}
    for place, table in enumerate(tables):
        table = table[kept].copy()
        for column in kept:
            if kinds[column]["sdtype"] == "categorical":
                table[column] = table[column].astype(object).where(table[column].notna(), "null").astype(str)
                values[column] = sorted({*values.get(column, ()), *table[column].unique()})
            else:
                table[column] = table[column].astype(float)
        tables[place] = table.sample(SYNMETER_ROWS, random_state=place)
    found = {name: float(error) for name, error in cal_fidelity(*tables, values).items()}
    judged = {"synmeter": sum(found.values()) / len(found), **found}
    (folder / "judged.json").write_text(json.dumps(judged), encoding="utf-8")


RULERS: dict[str, Callable[[Path], None]] = {
    "sdnist": judge_by_sdnist,
    "sdmetrics": judge_by_sdmetrics,
    "synmeter": judge_by_synmeter,
}


def main(name: str, folder: Path) -> int:
    """Lay one ruler on the folder's table; returns the exit code."""
    try:
        RULERS[name](folder)
    except ImportError as error:
        print(error, file=sys.stderr)
        return NOT_INSTALLED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
