"""How near estimates come: ``python -m benchmarks.estimate [--shapes 3000x4 ...]``, of the resources of a release.

Each shape is asked of ``privsyn estimate`` and then released, each in a process of its own.  Compared are CPU
seconds of the whole command, its peak memory and what it leaves on the disk: wall time is another on a busy machine.
``NAME`` in place of ROWSxCOLUMNS is one of the public tables of ``benchmarks/tables.py``; the others are made up,
census-like (``benchmarks/census_like.py``).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.scale import write_table
from benchmarks.tables import table_spec
from benchmarks.whole_release import timed_command
from privsyn.data_contracts.release_spec import ReleaseSpec

SHAPES = ("3000x4", "adult", "gss_happiness", "stroke_ist", "300000x30", "2000000x20", "100000x100", "20000x400")


def write_shape(shape: str, folder: Path) -> tuple[ReleaseSpec, int]:
    """Return the spec of a shape and its number of rows; a made-up table is written into the folder."""
    if "x" in shape and shape.replace("x", "").isdigit():
        rows, columns = map(int, shape.split("x"))
        return write_table(folder, rows, columns), rows
    spec = table_spec(shape)
    return spec.model_copy(update={"data": str(Path(spec.data).resolve())}), pq.read_metadata(spec.data).num_rows


def measure(shape: str) -> str:
    """Return a row of the table: estimated and found, and their ratios."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spec, rows = write_shape(shape, folder)
        path = folder / "spec.yaml"
        path.write_text(spec.model_dump_json(exclude_defaults=True), encoding="utf-8")  # JSON is YAML
        asked = timed_command(["estimate", str(path), "--rows-about", str(rows)], folder)
        done = timed_command(["release", str(path)], folder)
        disk = sum(file.stat().st_size for file in (folder / "out").rglob("*") if file.is_file()) / 2**20
    whole = asked.result["whole"]
    assert isinstance(whole, dict)  # noqa: S101 - the command's own JSON
    pairs = [(whole["cpu"], done.cpu, "s"), (whole["peak_mb"], done.peak_mb, "MB"), (whole["disk_mb"], disk, "MB")]
    shown = [f"{guess:,.1f} / {real:,.1f} {unit} | {guess / real:.2f}" for guess, real, unit in pairs]
    return f"| {shape.replace('x', ' x ')} | {' | '.join(shown)} | {asked.cpu:,.0f} s |"


def main() -> int:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(description="Estimates of resources against what releases took.")
    parser.add_argument("--shapes", nargs="+", default=SHAPES)
    print("| rows x columns | CPU, estimated / found | ratio | peak memory | ratio | disk | ratio | estimating |")
    print("|---|---|---|---|---|---|---|---|")
    for shape in parser.parse_args().shapes:
        print(measure(shape), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
