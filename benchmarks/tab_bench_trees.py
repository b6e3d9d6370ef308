"""CatBoost in an environment of its own: ``python tab_bench_trees.py FOLDER``.

FOLDER holds ``train.csv``, ``val.csv`` and ``test.csv`` (the label is the last column) and ``request.json`` (numbers:
the columns that are numbers; seed; settings, beside or in place of SETTINGS).  It gets ``trees.json``: accuracy, macro
F1 and the area under the ROC curve of the test rows, each 0 to 1, and CPU seconds.  Where the request says ``tune`` it
gets ``settings.json`` in its place, the settings that tab_bench would choose by these rows.
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

TUNED = {"iterations": 2000, "early_stopping_rounds": 50, "od_pval": 0.001}
"""What tab_bench does not draw when it tunes."""
DRAWS, FOLDS, HELD = 10, 5, 0.2
"""Its draws, the splits that each is judged on, and the share of rows that judge; its sampler learns from draw 11."""


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


def draw_settings(rng: np.random.Generator) -> dict[str, Any]:
    """Return one draw of the settings that tab_bench tunes, from its ranges."""
    return TUNED | {
        "learning_rate": float(np.exp(rng.uniform(np.log(0.001), 0.0))),
        "depth": int(rng.integers(3, 11)),
        "l2_leaf_reg": float(rng.uniform(0.1, 10.0)),
        "bagging_temperature": float(rng.uniform(0.0, 1.0)),
        "leaf_estimation_iterations": int(rng.integers(1, 11)),
    }


def split_rows(true: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the rows that train and of those held, HELD of each label of ``true``, shape (rows,)."""
    rng, held = np.random.default_rng(seed), np.zeros(len(true), dtype=bool)
    for label in np.unique(true):
        own = rng.permutation(np.flatnonzero(true == label))
        held[own[: round(HELD * len(own))]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)


def tune(features: pd.DataFrame, true: np.ndarray, others: list[str]) -> dict[str, Any]:
    """Return, of DRAWS draws, the settings of the largest mean macro F1 on held rows of FOLDS splits.

    true: labels of 0 and 1, shape (rows,); ``others``: the features that are no numbers.
    """
    from catboost import CatBoostClassifier

    rng, best, most = np.random.default_rng(0), {}, -1.0
    for _ in range(DRAWS):
        settings, found = draw_settings(rng), []
        for fold in range(FOLDS):
            train, held = split_rows(true, fold)
            model = CatBoostClassifier(**SETTINGS | settings, cat_features=others, random_seed=fold)
            model.fit(features.iloc[train], true[train], eval_set=(features.iloc[held], true[held]))
            found.append(score(true[held], model.predict_proba(features.iloc[held])[:, 1])["f1"])
        if np.mean(found) > most:
            best, most = settings, float(np.mean(found))
    return best


def main(folder: Path) -> None:
    """Train on the synthetic rows, stop by the real validation rows, test on the real test rows; or tune."""
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
    others = [c for c in features if c not in request["numbers"]]
    begun = time.process_time()
    if request.get("tune"):
        rows = pd.concat([tables["train"], tables["val"]], ignore_index=True)
        settings = tune(rows[features], np.concatenate([true["train"], true["val"]]), others)
        settings_text = json.dumps(settings | {"cpu": time.process_time() - begun})
        (folder / "settings.json").write_text(settings_text, encoding="utf-8")
        return
    if len(set(true["train"])) < 2:
        chance = np.full(len(true["test"]), float(true["train"][0]))
    else:
        settings = SETTINGS | request.get("settings", {})
        model = CatBoostClassifier(**settings, cat_features=others, random_seed=request["seed"])
        model.fit(tables["train"][features], true["train"], eval_set=(tables["val"][features], true["val"]))
        chance = model.predict_proba(tables["test"][features])[:, 1]
    found = {**score(true["test"], chance), "cpu": time.process_time() - begun}
    (folder / "trees.json").write_text(json.dumps(found), encoding="utf-8")


_PARTS = ("train", "val", "test")

if __name__ == "__main__":
    main(Path(sys.argv[1]))
