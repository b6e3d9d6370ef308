"""The benchmark of itemsets: its readers, its referee, and what it counts, on tables made here."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from benchmarks import itemsets
from benchmarks.itemsets import Baskets, most_frequent, mushroom, scores, supermarket


def test_the_readers(tmp_path: Path) -> None:
    arff = "@relation r\n@attribute 'bread and cake' { t}\n@attribute tea { t}\n@attribute total {low, high}\n@data\n"
    (tmp_path / "s.arff").write_text(arff + "t,?,low\nt,t,high\n?,?,low\n")
    table = supermarket(tmp_path / "s.arff")
    assert table.items == ("bread and cake", "tea")
    assert table.baskets == (("bread and cake",), ("bread and cake", "tea"), ())
    (tmp_path / "m.dat").write_text("x,s\nb,s\n")
    assert mushroom(tmp_path / "m.dat").baskets == (("0=x", "1=s"), ("0=b", "1=s"))


def test_the_exact_itemsets_are_those_of_brute_force() -> None:
    table = Baskets("supermarket", tuple("abcd"), (tuple("abc"), tuple("ab"), tuple("bcd"), tuple("b")) * 3)
    every = {
        s: 3 * sum({*s} <= {"abcd".index(i) for i in b} for b in table.baskets[:4])
        for size in range(1, 5)
        for s in combinations(range(4), size)
    }
    wanted = sorted((count for count in every.values()), reverse=True)[:6]
    found = most_frequent(table.whole, 6)
    assert list(found.values()) == wanted
    assert all(every[s] == count for s, count in found.items())


def test_with_little_noise_nothing_is_missed_and_without_a_cut_nothing_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(itemsets, "MAX_ITEMS", {"supermarket": 4})
    table = Baskets("supermarket", tuple("abcd"), (tuple("abc"),) * 900 + (tuple("ab"),) * 700 + (("d",),) * 300)
    missing, error = scores(table, 3, 20.0, 0)
    assert missing == 0 and error < 0.02
    monkeypatch.setattr(itemsets, "MAX_ITEMS", {"supermarket": 1})
    assert scores(table, 3, 20.0, 0)[1] > 0.2
