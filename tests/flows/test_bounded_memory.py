"""Memory of a release does not depend on how many rows the private or the synthetic table has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.places import ROOT

COLUMNS, SIZE = 20, 16
RELEASE = """
import json, sys
from pathlib import Path
import privsyn.data_contracts.tables, privsyn.tasks.kernels.blocks
privsyn.tasks.kernels.blocks.BLOCK_BYTES = 1 << 18
privsyn.data_contracts.tables.BATCH_ROWS = 8_192
from privsyn.base.process_memory import memory_mb
from privsyn.data_contracts.release_spec import ReleaseSpec
from tests.support.releases import release_in_process
from privsyn.base.settings import Settings
folder, peaks = Path(sys.argv[1]), []
for name in ("few", "some", "many"):
    spec = ReleaseSpec.model_validate_json((folder / f"{name}.json").read_text())
    Path("/proc/self/clear_refs").write_text("5")
    before = memory_mb("VmRSS")
    done = release_in_process(spec, Settings(out=folder / name, ledger=str(folder / f"{name}.sqlite"), threads=1))
    peaks.append([done.rows, memory_mb("VmHWM") - before])
print(json.dumps(peaks))
"""
"""Three releases in one process, the first to load and compile; batches, blocks and shards are small beside tables."""


def write_spec(folder: Path, name: str, rows: int) -> None:
    """A table of ``rows`` rows in row groups of 8,192, and a spec that makes as many in shards of 8,192."""
    rng, path = np.random.default_rng(0), folder / f"{name}.parquet"
    schema = pa.schema([(f"c{i}", pa.int64()) for i in range(COLUMNS)])
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, rows, 8_192):
            number = min(8_192, rows - first)
            writer.write_table(pa.table([rng.integers(SIZE, size=number) for _ in range(COLUMNS)], schema=schema))
    column = {"kind": "integer", "min": 0, "max": SIZE - 1, "bins": SIZE}
    spec = {
        "dataset": "bounded", "data": str(path), "unit": {"records_per_person": 1},
        "privacy": {"epsilon": 1, "delta": 1e-9}, "budget": {"epsilon": 2, "delta": 1e-8},
        "columns": {f"c{i}": column for i in range(COLUMNS)},
        "synthesis": {"rows": rows, "shard_rows": 8_192, "sweeps": 1},
    }  # fmt: skip
    (folder / f"{name}.json").write_text(json.dumps(spec), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system does not tell peaks")
def test_ten_times_the_rows_take_no_more_memory(tmp_path: Path) -> None:
    """A table of 1.3 million int64 rows x 20 takes 200 MB in memory, and its codes 25; both are far above the bound."""
    sizes = {"few": 8_192, "some": 131_072, "many": 1_310_720}
    for name, rows in sizes.items():
        write_spec(tmp_path, name, rows)
    command = [sys.executable, "-c", RELEASE, str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    (_, _), (some_rows, some), (many_rows, many) = json.loads(done.stdout.splitlines()[-1])
    assert (some_rows, many_rows) == (sizes["some"], sizes["many"])
    assert len(list((tmp_path / "many" / "released").glob("*/synthetic/part-*.parquet"))) == 160
    assert many < some + 15, f"{some:.0f} MB, and {many:.0f} MB for ten times the rows"
