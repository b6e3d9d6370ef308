"""CatBoost in an environment of its own: ``python tab_bench_trees.py FOLDER``.

FOLDER holds ``train.csv``, ``val.csv`` and ``test.csv`` (the label is the last column) and ``request.json`` (numbers:
the columns that are numbers; seed).  It gets ``trees.json``: accuracy, macro F1 and the area under the ROC curve of the
test rows, each 0 to 1, and CPU seconds.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

SETTINGS = {
    "iterations": 150,
    "learning_rate": 0.15,
    "depth": 6,
    "early_stopping_rounds": 30,
    "max_ctr_complexity": 4,
    "eval_metric": "TotalF1",
    "thread_count": 1,
    "allow_writing_files": False,
    "verbose": False,
}
"""Those of tab_bench are tuned on each table and not published: these are fixed."""


def score(true: np.ndarray, chance: np.ndarray) -> dict[str, float]:
    """Return the figures of labels of 0 and 1 and the chances of 1, both of shape (rows,)."""
    guess = chance >= 0.5
    found = []
    for label in (False, True):
        hits = float(((guess == label) & (true == label)).sum())
        found.append(2 * hits / max(1.0, float((guess == label).sum() + (true == label).sum())))
    ranks = pd.Series(chance).rank().to_numpy()
    ones, zeros = float((true == 1).sum()), float((true == 0).sum())
    area = (ranks[true == 1].sum() - ones * (ones + 1) / 2) / max(1.0, ones * zeros)
    return {"accuracy": float((guess == true).mean()), "f1": float(np.mean(found)), "auc": float(area)}


def main(folder: Path) -> None:
    """Train on the synthetic rows, stop by the real validation rows, test on the real test rows."""
    from catboost import CatBoostClassifier

    request: dict[str, Any] = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    tables = {part: pd.read_csv(folder / f"{part}.csv", dtype=str, keep_default_na=False) for part in _PARTS}
    label = tables["test"].columns[-1]
    levels = sorted(set(tables["test"][label]))
    features = [c for c in tables["test"].columns if c != label]
    for table in tables.values():
        for name in request["numbers"]:
            table[name] = table[name].astype(float)
    true = {part: (table[label] == levels[-1]).to_numpy(dtype=int) for part, table in tables.items()}
    begun = time.process_time()
    if len(set(true["train"])) < 2:
        chance = np.full(len(true["test"]), float(true["train"][0]))
    else:
        others = [c for c in features if c not in request["numbers"]]
        model = CatBoostClassifier(**SETTINGS, cat_features=others, random_seed=request["seed"])
        model.fit(tables["train"][features], true["train"], eval_set=(tables["val"][features], true["val"]))
        chance = model.predict_proba(tables["test"][features])[:, 1]
    found = {**score(true["test"], chance), "cpu": time.process_time() - begun}
    (folder / "trees.json").write_text(json.dumps(found), encoding="utf-8")


_PARTS = ("train", "val", "test")

if __name__ == "__main__":
    main(Path(sys.argv[1]))
