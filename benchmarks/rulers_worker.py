"""One ruler of others laid on one table, in the ruler's own environment: ``python rulers_worker.py RULER FOLDER``.

sdnist: FOLDER holds ``made.csv`` and ``data/`` (what SDNist would download); it gets SDNist's report in ``report/``.
sdmetrics: FOLDER holds ``real.parquet``, ``made.parquet`` and ``metadata.json``; it gets ``judged.json``.
Exit code 3: the ruler is not installed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

NOT_INSTALLED = 3


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


RULERS: dict[str, Callable[[Path], None]] = {"sdnist": judge_by_sdnist, "sdmetrics": judge_by_sdmetrics}


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
