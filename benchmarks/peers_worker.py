"""One run of one peer, in the peer's own environment: ``python peers_worker.py PEER FOLDER``.

FOLDER holds ``request.json`` (epsilon, delta, seed) and ``real.npz`` (codes: int32, rows x columns; sizes: the public
number of codes of each column).  It gets ``made.npz`` (codes) and ``made.json`` (wall and CPU seconds of the peer's
own work, imports left out).  Exit code 3: the peer is not installed.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

NOT_INSTALLED = 3
"""Exit code where the peer's package is missing."""

AIM_MEGABYTES = 4
"""AIM's bound on its model; with the usual DEFAULT_MEGABYTES a run takes hours."""
DEFAULT_MEGABYTES = 80

TAB_BENCH_PRIVSYN = {
    "dataset_name": "rows",
    **dict.fromkeys(("is_cal_marginals", "is_cal_depend", "is_combine", "append"), True),
    "sep_syn": False,
    "marg_add_sensitivity": 1.0,
    "marg_sel_threshold": 20_000,
    "non_negativity": "N3",
    "consist_iterations": 501,
    "initialize_method": "singleton",
    "update_method": "S5",
    "update_rate_method": "U4",
    "update_rate_initial": 1.0,
    "update_iterations": 50,
}
"""The settings of tab_bench's PrivSyn (method/privsyn/run_privsyn.py of its source)."""

MARGNET_TRAINING = {"selection_iterations": 200, "final_iterations": 200, "lr": 1e-3, "batch_size": 512}
MARGNET_LAYERS = [256, 256]
"""The settings of MargNet for Adult from 0.2 to 5 (method/MargDL/config/gan/adult.toml of tab_bench's source)."""

Peer = Callable[[pd.DataFrame, Mapping[str, int], float, float, int], pd.DataFrame]
"""From rows of codes, the number of codes by column, epsilon, delta and a seed to synthetic rows of codes."""


def aim_dpmm(
    rows: pd.DataFrame,
    sizes: Mapping[str, int],
    epsilon: float,
    delta: float,
    seed: int,
    megabytes: float = AIM_MEGABYTES,
) -> pd.DataFrame:
    """AIM of dpmm: its settings, but ``megabytes`` and one process; as many rows as its noisy total says."""
    from dpmm.models.aim import AIMGM

    model = AIMGM(
        epsilon=epsilon,
        delta=delta,
        max_model_size=megabytes,
        domain=dict(sizes),
        random_state=np.random.RandomState(seed),
        n_jobs=1,
    )
    model.fit(rows)
    return model.generate()


def mst_dpmm(rows: pd.DataFrame, sizes: Mapping[str, int], epsilon: float, delta: float, seed: int) -> pd.DataFrame:
    """MST of dpmm: its settings, in one process; as many rows as its noisy total says."""
    from dpmm.models.mst import MSTGM

    state = np.random.RandomState(seed)
    model = MSTGM(epsilon=epsilon, delta=delta, domain=dict(sizes), random_state=state, n_jobs=1)
    model.fit(rows)
    return model.generate()


def privbayes_dpmm(
    rows: pd.DataFrame, sizes: Mapping[str, int], epsilon: float, delta: float, seed: int
) -> pd.DataFrame:
    """PrivBayes of dpmm: its settings (degree 2), in one process; as many rows as its noisy total says."""
    from dpmm.models.priv_bayes import PrivBayesGM

    state = np.random.RandomState(seed)
    model = PrivBayesGM(epsilon=epsilon, delta=delta, domain=dict(sizes), random_state=state, n_jobs=1)
    model.fit(rows)
    return model.generate()


def _public_labels(sizes: Mapping[str, int]) -> Any:
    """Return the codes as public labels: a transformer that is fitted on the domain, not on the rows."""
    from snsynth.transform import LabelTransformer, TableTransformer

    public = pd.DataFrame({a: np.minimum(np.arange(max(sizes.values())), n - 1) for a, n in sizes.items()})
    transformer = TableTransformer([LabelTransformer(nullable=False) for _ in sizes])
    transformer.fit(public)
    return transformer


def _smartnoise(synthesizer: Any, rows: pd.DataFrame, sizes: Mapping[str, int], seed: int) -> pd.DataFrame:
    """Fit and sample with the codes as public labels.

    Rows are sampled by mbi's method "sample": its default, "round", fills every group in row order, which ties the
    columns that depend on one parent to each other (Adult, epsilon 1, MST: pairs at .24 instead of .16).
    """
    np.random.seed(seed)  # noqa: NPY002
    synthesizer.fit(rows, transformer=_public_labels(sizes))
    model = synthesizer.synthesizer
    synthesizer.synthesizer = SimpleNamespace(synthetic_data=partial(model.synthetic_data, method="sample"))
    return pd.DataFrame(synthesizer.sample(len(rows)))


def aim_smartnoise(
    rows: pd.DataFrame, sizes: Mapping[str, int], epsilon: float, delta: float, seed: int
) -> pd.DataFrame:
    """AIM of smartnoise-synth: its settings, but AIM_MEGABYTES."""
    from snsynth.aim import AIMSynthesizer

    return _smartnoise(AIMSynthesizer(epsilon, delta, max_model_size=AIM_MEGABYTES), rows, sizes, seed)


def mst_smartnoise(
    rows: pd.DataFrame, sizes: Mapping[str, int], epsilon: float, delta: float, seed: int
) -> pd.DataFrame:
    """MST of smartnoise-synth: its settings."""
    from snsynth.mst import MSTSynthesizer

    return _smartnoise(MSTSynthesizer(epsilon, delta), rows, sizes, seed)


def mwem_smartnoise(
    rows: pd.DataFrame, sizes: Mapping[str, int], epsilon: float, delta: float, seed: int
) -> pd.DataFrame:
    """MWEM of smartnoise-synth: its settings; pure differential privacy, without the delta."""
    from snsynth.mwem import MWEMSynthesizer

    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    synthesizer = MWEMSynthesizer(epsilon)
    synthesizer.fit(rows, transformer=_public_labels(sizes))
    return pd.DataFrame(synthesizer.sample(len(rows)), columns=rows.columns)


def privsyn_core(rows: pd.DataFrame, sizes: Mapping[str, int], epsilon: float, delta: float, seed: int) -> pd.DataFrame:
    """PrivSyn of privsyn-core: its settings, the optimal zCDP conversion included."""
    from privsyn import PrivSynModel

    model = PrivSynModel(epsilon=epsilon, delta=delta, random_state=seed)
    model.fit(rows, dict(sizes))
    return model.sample(len(rows))


def _opendp(
    algorithm: Any, rows: pd.DataFrame, sizes: Mapping[str, int], epsilon: float, delta: float, seed: int
) -> pd.DataFrame:
    """Return a contingency table of OpenDP, each code a cut of its own; rows drawn as in :func:`_smartnoise`.

    With all cuts public OpenDP demands a delta of zero: it is asked for the rho of (epsilon, delta) by its own
    conversion.  Its noise has no seed.  As many rows as its noisy total says.
    """
    import opendp.prelude as dp
    import polars as pl

    rho = _rho(epsilon, delta)
    np.random.seed(seed)  # noqa: NPY002
    context = dp.Context.compositor(
        data=pl.LazyFrame({c: rows[c].to_numpy() for c in rows}),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(rho=rho),
        split_evenly_over=1,
    )
    cuts = {c: list(range(n - 1)) for c, n in sizes.items()}
    table = context.query().contingency_table(cuts=cuts, algorithm=algorithm).release()
    return pd.DataFrame(table.model.synthetic_data(method="sample").df)


def _rho(epsilon: float, delta: float) -> float:
    """Return the largest rho, to a part in 10^9, whose zCDP implies (epsilon, delta) by OpenDP's conversion."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)

    def told(rho: float) -> float:
        look = dp.m.make_gaussian(*space, scale=(2 * rho) ** -0.5)
        return dp.c.make_zCDP_to_approxDP(look).map(1.0).epsilon(delta)

    low, high = 0.0, epsilon
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if told(middle) <= epsilon else (low, middle)
    return low


def mst_opendp(rows: pd.DataFrame, sizes: Mapping[str, int], epsilon: float, delta: float, seed: int) -> pd.DataFrame:
    """MST of OpenDP: its settings, but parts of the budget are rounded down by a part in 10^9.

    It rounds each to the float below, and the sum of many (9 columns and more) then is above the whole: it fails.
    """
    from opendp.extras.mbi import MST, _mst

    _mst.prior = lambda x: x * (1 - 1e-9)
    return _opendp(MST(), rows, sizes, epsilon, delta, seed)


def aim_opendp(
    rows: pd.DataFrame,
    sizes: Mapping[str, int],
    epsilon: float,
    delta: float,
    seed: int,
    queries: int = 2,
    megabytes: float = AIM_MEGABYTES,
) -> pd.DataFrame:
    """AIM of OpenDP: its settings, but sets of ``queries`` columns as workload (its own: triples), ``megabytes``."""
    from opendp.extras.mbi import AIM

    return _opendp(AIM(queries=queries, max_size=megabytes), rows, sizes, epsilon, delta, seed)


def privsyn_tab_bench(
    rows: pd.DataFrame, sizes: Mapping[str, int], epsilon: float, delta: float, seed: int
) -> pd.DataFrame:
    """PrivSyn as the benchmark tab_bench implements it, from a clone of its source, with its settings.

    Its rho is dpmm's copy of the same conversion.  It keeps files in the working folder: the run's own.
    """
    from dpmm.models.base.mechanisms.cdp2adp import cdp_rho
    from method.privsyn.PrivSyn.privsyn import PrivSyn

    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    asked = {"dataset": "rows", "method": "privsyn", "epsilon": epsilon, "num_preprocess": "", "rare_threshold": 0.002}
    asked |= TAB_BENCH_PRIVSYN
    renamed = rows.rename(columns={rows.columns[-1]: "y_attr"})
    os.chdir(tempfile.mkdtemp(dir=os.environ["PRIVSYN_CORE_DATA_ROOT"]))
    Path(f"exp/rows/privsyn/{epsilon}__0.002").mkdir(parents=True)
    domain = dict(zip(renamed.columns, sizes.values(), strict=True))
    model = PrivSyn(asked, renamed, domain, cdp_rho(epsilon, delta))
    model.run_main()
    made: list[pd.DataFrame] = []
    model.syn(len(rows), SimpleNamespace(reverse_data=lambda frame, _: made.append(frame)), None)
    return made[0].set_axis(rows.columns, axis=1)


def margnet(rows: pd.DataFrame, sizes: Mapping[str, int], epsilon: float, delta: float, seed: int) -> pd.DataFrame:
    """MargNet from a clone of tab_bench's later source, with its settings of Adult, on one thread of a CPU.

    Its fit asks CUDA how much memory it took, and keeps the answer in a file: here that is 0.
    """
    import torch
    from method.MargDL.main import MargDLGen
    from util.rho_cdp import cdp_rho

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.cuda.reset_peak_memory_stats = lambda *_, **__: None
    torch.cuda.max_memory_allocated = lambda *_, **__: 0
    asked = SimpleNamespace(iter=None, lr=None, batch=None, test=False, resample=False)
    config = {"train": dict(MARGNET_TRAINING), "model_params": {"d_layers": MARGNET_LAYERS, "dropout": 0.0}}
    with tempfile.TemporaryDirectory() as folder:
        model = MargDLGen(asked, rows, dict(sizes), "cpu", config, folder, "gan")
        model.fit_adaptive(cdp_rho(epsilon, delta))
        made = model.model.sample(len(rows))
    return pd.DataFrame(made, columns=rows.columns)


def echo(rows: pd.DataFrame, sizes: Mapping[str, int], epsilon: float, delta: float, seed: int) -> pd.DataFrame:
    """Return the rows themselves: no method, only a check of the way there and back."""
    return rows


PEERS: dict[str, tuple[str, Peer]] = {
    "aim-dpmm": ("dpmm.models.aim", aim_dpmm),
    "mst-dpmm": ("dpmm.models.mst", mst_dpmm),
    "privbayes-dpmm": ("dpmm.models.priv_bayes", privbayes_dpmm),
    "mwem-smartnoise": ("snsynth.mwem", mwem_smartnoise),
    "aim-smartnoise": ("snsynth.aim", aim_smartnoise),
    "mst-smartnoise": ("snsynth.mst", mst_smartnoise),
    "privsyn-core": ("privsyn", privsyn_core),
    "mst-opendp": ("opendp.extras.mbi", mst_opendp),
    "aim-opendp": ("opendp.extras.mbi", aim_opendp),
    "aim-80-dpmm": ("dpmm.models.aim", partial(aim_dpmm, megabytes=DEFAULT_MEGABYTES)),
    "aim-80-opendp": ("opendp.extras.mbi", partial(aim_opendp, queries=3, megabytes=DEFAULT_MEGABYTES)),
    "privsyn-tab-bench": ("method.privsyn.PrivSyn.privsyn", privsyn_tab_bench),
    "margnet": ("method.MargDL.main", margnet),
    "echo": ("json", echo),
}
"""Name -> module that is imported before the clock starts, and the call."""


def main(name: str, folder: Path) -> int:
    """Run one peer; returns the exit code."""
    module, peer = PEERS[name]
    sys.path += filter(None, [os.environ.get("TAB_BENCH_SOURCE")])
    try:
        importlib.import_module(module)
    except ImportError as error:
        print(error, file=sys.stderr)
        return NOT_INSTALLED
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    with np.load(folder / "real.npz") as real:
        codes, sizes = real["codes"], real["sizes"]
    names = [f"c{i}" for i in range(len(sizes))]
    rows = pd.DataFrame(codes.astype(np.int64), columns=names)
    public = dict(zip(names, map(int, sizes), strict=True))
    wall, cpu = time.perf_counter(), time.process_time()
    made = peer(rows, public, request["epsilon"], request["delta"], request["seed"])
    spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    np.savez_compressed(folder / "made.npz", codes=made[names].to_numpy(dtype=np.int64).astype(np.int32))
    (folder / "made.json").write_text(json.dumps(spent), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
