"""One run of one peer that bins columns itself, in its own environment: ``python relations_worker.py PEER FOLDER``.

FOLDER holds ``request.json`` (epsilon, delta, the rho of both, seed; domain: of every column its bounds, or its number
of codes; whole: the columns of whole numbers; label: the column whose rows tab-pe makes value by value; bins: kind and
number in place of the peer's own) and ``real.npz`` (values: float64, rows x columns, NaN for null).  It gets
``made.npz`` (values) and ``made.json`` (wall and CPU seconds of the peer's own work).  Exit code 3: the peer is not
installed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pandas as pd

NOT_INSTALLED = 3
BINNING = 0.1
"""Share of epsilon for the peer's own bins (PrivTree): its default at epsilon 1."""
MEGABYTES = 4
"""AIM's bound on its model."""
SWIFT_CELLS = 1e6
"""SWIFT's bound on the cells of a clique; with its own 1e7 Adult did not finish in six CPU minutes."""
TAB_PE_ROWS, TAB_PE_ROUNDS, TAB_PE_SAMPLED_ROUNDS = 1_000, 15, 5
"""Rows that Tab-PE makes, its rounds, and those of them that draw by votes (example/tabular/ of its source)."""


def main(name: str, folder: Path) -> int:
    """Run one peer; returns the exit code."""
    runs = {"tab-pe": run_tab_pe, "copula-sdv": run_sdv}
    if name in runs:
        return runs[name](folder)
    return run_dpsynth(name, folder) if name.endswith("-dpsynth") else run_dpmm(name, folder)


def run_dpmm(name: str, folder: Path) -> int:
    """Run AIM or MST of dpmm; returns the exit code."""
    try:
        from dpmm.pipelines import AIMPipeline, MSTPipeline
    except ImportError as error:
        print(error, file=sys.stderr)
        return NOT_INSTALLED
    request, rows = _read_given(folder)
    domain = {}
    for column, content in request["domain"].items():
        whole = column in request["whole"] and not rows[column].isna().any()
        rows[column] = rows[column].astype(np.int64) if whole else rows[column]
        domain[column] = content
        if "codes" in content:
            domain[column] = {"categories": list(range(content["codes"]))}
            rows[column] = rows[column].astype(np.int64).astype("category")
    wall, cpu = time.perf_counter(), time.process_time()
    epsilon = request["epsilon"]
    shared = {"epsilon": epsilon * (1 - BINNING), "proc_epsilon": epsilon * BINNING, "delta": request["delta"]}
    if request["bins"]:
        shared |= {"binner_type": request["bins"][0], "n_bins": request["bins"][1]}
    aim = name.startswith("aim")
    pipeline = AIMPipeline(**shared, max_model_size=MEGABYTES, n_jobs=1) if aim else MSTPipeline(**shared, n_jobs=1)
    pipeline.fit(rows, domain=domain, random_state=request["seed"])
    made = pipeline.generate(n_records=len(rows), random_state=request["seed"])
    spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    columns = [pd.to_numeric(made[c].astype(object), errors="coerce").to_numpy(np.float64) for c in request["domain"]]
    _write_made(folder, columns, spent)
    return 0


def run_dpsynth(name: str, folder: Path) -> int:
    """Run AIM, MST or SWIFT of dpsynth with its settings, but SWIFT_CELLS; returns the exit code.

    Null is out of domain for numbers, under a whole number outside the bounds: as it is, its code of a byte less 1
    is 255.  It gets the rho of zCDP: its own search for one needs a dp_accounting that is not on the package index.
    """
    try:
        from dpsynth import discrete_mechanisms, domain
        from dpsynth.data_generation_v3 import TabularConfig
        from dpsynth.local_mode import vectorized_transformations as ways
    except ImportError as error:
        print(error, file=sys.stderr)
        return NOT_INSTALLED
    as_it_is = ways.undiscretize
    ways.undiscretize = lambda bins, *rest, **named: as_it_is(bins.astype(np.int64), *rest, **named)
    request, rows = _read_given(folder)
    drawn = request["bins"] and request["bins"][0] == "drawn"
    handling = {"interval_handling": "sample"} if drawn else {}  # its own: the middle of each bin
    domains: dict[str, Any] = {}
    for column, content in request["domain"].items():
        if "codes" in content:
            rows[column] = rows[column].astype(np.int64)
            domains[column] = domain.CategoricalAttribute(possible_values=list(range(content["codes"])))
            continue
        low, high = content["lower"], content["upper"]
        outside = {"clip_to_range": False, "sentinel": int(low) - 1} if rows[column].isna().any() else {}
        kind = "int" if column in request["whole"] else "float"
        domains[column] = domain.NumericalAttribute(low, high, dtype=kind, **outside, **handling)
    mechanisms = {
        "aim": discrete_mechanisms.AIMConfig,
        "mst": discrete_mechanisms.MSTConfig,
        "swift": discrete_mechanisms.SWIFTConfig,
    }
    chosen = mechanisms[name.removesuffix("-dpsynth")]
    cells = {"max_clique_size": SWIFT_CELLS} if name.startswith("swift") else {}
    number = {"numerical_bins": request["bins"][1]} if request["bins"] else {}
    wall, cpu = time.perf_counter(), time.process_time()
    config = TabularConfig(domains=domains, discrete_mechanism=chosen(**cells), **number)
    mechanism = config.configure(zcdp_rho=request["rho"], delta=request["delta"])
    made = mechanism(np.random.default_rng(request["seed"]), rows).synthetic_data
    spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    columns = []
    for column, content in request["domain"].items():
        numbers = pd.to_numeric(made[column]).to_numpy(np.float64)
        columns.append(numbers if "codes" in content else np.where(numbers < content["lower"], np.nan, numbers))
    _write_made(folder, columns, spent)
    return 0


def run_sdv(folder: Path) -> int:
    """Run SDV's Gaussian copula, which promises no privacy, with its settings; returns the exit code."""
    try:
        from sdv.metadata import Metadata
        from sdv.single_table import GaussianCopulaSynthesizer
    except ImportError as error:
        print(error, file=sys.stderr)
        return NOT_INSTALLED
    request, rows = _read_given(folder)
    kinds = {c: "categorical" if "codes" in content else "numerical" for c, content in request["domain"].items()}
    metadata = Metadata.load_from_dict(
        {"tables": {"table": {"columns": {c: {"sdtype": kind} for c, kind in kinds.items()}}}, "relationships": []}
    )
    np.random.seed(request["seed"])  # noqa: NPY002
    wall, cpu = time.perf_counter(), time.process_time()
    synthesizer = GaussianCopulaSynthesizer(metadata)
    synthesizer.fit({"table": rows})
    made = synthesizer.sample(len(rows))["table"]
    spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    _write_made(folder, [pd.to_numeric(made[c]).to_numpy(np.float64) for c in request["domain"]], spent)
    return 0


def run_tab_pe(folder: Path) -> int:
    """Run Tab-PE of a clone of microsoft/DPSDA that TAB_PE_SOURCE names, with the settings of its examples.

    It makes rows value by value of the label, as many of each as its share of the private rows, which it takes for
    public.  It has no null: a table with one fails.  What it imports for pictures and text is left out.
    """
    sys.path += filter(None, [os.environ.get("TAB_PE_SOURCE")])
    sys.modules |= {f"pe.{part}.{of}": MagicMock() for part in ("data", "api", "embedding") for of in ("image", "text")}
    try:
        from pe.api import TabularAPI
        from pe.constant.data import LABEL_ID_COLUMN_NAME, TABULAR_DATA_COLUMN_NAME, VARIATION_API_FOLD_ID_COLUMN_NAME
        from pe.data import Data, TabularColumnType
        from pe.embedding import TabularEmbedding
        from pe.histogram import NearestNeighbors
        from pe.population import CompositePopulation, PEPopulation
        from pe.runner import PE
    except ImportError as error:
        print(error, file=sys.stderr)
        return NOT_INSTALLED
    request, rows = _read_given(folder)
    if rows.isna().any(axis=None):
        raise ValueError("has nulls, for which Tab-PE has no place")
    np.random.seed(request["seed"])  # noqa: NPY002
    label, kinds, info = request["label"], {"cat": [], "int": [], "float": []}, {}
    for column, content in request["domain"].items():
        kind = "cat" if "codes" in content else "int" if column in request["whole"] else "float"
        rows[column] = rows[column] if kind == "float" else rows[column].astype(np.int64)
        if column != label:
            kinds[kind].append(column)
            found = {"categories": list(range(content.get("codes", 0)))}
            bounds = {"min": content.get("lower"), "max": content.get("upper")}
            info[column] = {**(found if kind == "cat" else bounds), "type": TabularColumnType(kind)}
    features = [*kinds["cat"], *kinds["int"], *kinds["float"]]
    info = {column: info[column] for column in features}
    levels = sorted(rows[label].unique())
    described = {"label_columns": [label], "feature_columns": features}
    described |= {f"{kind}_columns": columns for kind, columns in kinds.items()}
    described["label_info"] = [{"name": f"{label}: {v}", "column_values": {label: float(v)}} for v in levels]
    own = {TABULAR_DATA_COLUMN_NAME: rows[features].to_numpy(dtype=object).tolist()}
    own[LABEL_ID_COLUMN_NAME] = np.searchsorted(levels, rows[label]).tolist()
    wall, cpu = time.perf_counter(), time.process_time()
    api = TabularAPI(info=info, num_iterations=TAB_PE_ROUNDS)
    nearest = NearestNeighbors(embedding=TabularEmbedding(info=info), mode="L2", lookahead_degree=0, backend="sklearn")
    by_votes = PEPopulation(api=api, histogram_threshold=0)
    by_rank = PEPopulation(
        api=api, initial_variation_api_fold=3, next_variation_api_fold=3, keep_selected=True, selection_mode="rank"
    )
    rounds = [by_votes] * TAB_PE_SAMPLED_ROUNDS + [by_rank] * (TAB_PE_ROUNDS - TAB_PE_SAMPLED_ROUNDS)
    runner = PE(priv_data=Data(pd.DataFrame(own), described), population=CompositePopulation(rounds), histogram=nearest)
    last = runner.run(
        num_samples_schedule=[TAB_PE_ROWS] * TAB_PE_ROUNDS,
        epsilon=request["epsilon"],
        delta=request["delta"],
        save_checkpoint=False,
    ).data_frame
    kept = last[last[VARIATION_API_FOLD_ID_COLUMN_NAME] == -1]
    made = pd.DataFrame(kept[TABULAR_DATA_COLUMN_NAME].tolist(), columns=features)
    made[label] = np.asarray(levels)[kept[LABEL_ID_COLUMN_NAME].to_numpy()]
    spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    _write_made(folder, [made[c].to_numpy(np.float64) for c in request["domain"]], spent)
    return 0


def _read_given(folder: Path) -> tuple[dict[str, Any], pd.DataFrame]:
    """Return the request, and the real rows by column."""
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    with np.load(folder / "real.npz") as real:
        return request, pd.DataFrame(real["values"], columns=list(request["domain"]))


def _write_made(folder: Path, columns: list[np.ndarray], spent: dict[str, float]) -> None:
    np.savez_compressed(folder / "made.npz", values=np.stack(columns, axis=1))
    (folder / "made.json").write_text(json.dumps(spent), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
