"""Frequent itemsets as a whole: layouts, what is released, money, caching, refusals, mutants, the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from privsyn.api.ledger import LedgerView
from privsyn.base.errors import BudgetRefusedError, RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.artifacts import StepKind
from privsyn.data_contracts.certificate import Certificate
from privsyn.engine.execute import Run
from privsyn.engine.improved_run import note_of
from privsyn.engine.step import ReleaseStep
from privsyn.extras.itemsets.itemset_spec import ItemsetSpec
from privsyn.extras.itemsets.itemset_spec_file import check_itemset_spec, load_itemset_spec
from privsyn.extras.itemsets.publish_itemsets import ItemsetSummary, publish_itemsets
from privsyn.extras.itemsets.steps import build_itemset_steps
from privsyn.ledgers.ledger import Ledger
from privsyn.publish.folder import is_whole
from privsyn.storage.released_files import read_manifest
from privsyn.tasks.privacy.accountant import CapAccountant, convert_epsilon_to_rho
from privsyn.tasks.privacy.noise import NoNoise
from tests.support.commands import privsyn as command
from tests.support.examples import keep_first
from tests.support.places import ROOT

ITEMS = ["bread", "butter", "cheese", "eggs", "milk", "tea", "wine"]
CANARY = "CANARY-OF-A-BASKET"


def baskets(rows: int = 400) -> list[list[str]]:
    """Breakfast and supper baskets; some hold an item that nobody listed."""
    rng = np.random.default_rng(5)
    found = []
    for i in range(rows):
        usual = ["bread", "butter", "milk"] if i % 3 else ["bread", "cheese", "wine"]
        found.append(
            [item for item in usual if rng.random() < 0.9] + [x for x in ("tea", "eggs") if rng.random() < 0.2]
        )
        found[-1] += [CANARY] * (i % 50 == 0)
    return found


def asked(data: Path, layout: dict[str, Any], **changes: Any) -> ItemsetSpec:
    content = {
        "dataset": "baskets",
        "data": str(data),
        "layout": layout,
        "items": ITEMS,
        "transactions_per_person": 1,
        "max_items": 4,
        "top": 9,
        "privacy": {"epsilon": 2.0, "delta": 1e-9},
        "budget": {"epsilon": 9.0, "delta": 1e-8},
    }
    return check_itemset_spec({**content, **changes})


@pytest.fixture
def listed(places: Path) -> ItemsetSpec:
    pq.write_table(pa.table({"basket": baskets(), "till": [CANARY] * 400}), places / "baskets.parquet")
    return asked(places / "baskets.parquet", {"kind": "list", "column": "basket"})


def ask(spec: ItemsetSpec, **how: Any) -> ItemsetSummary:
    return publish_itemsets(spec, Settings(), **how)


def contents(folder: str) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()}


def spent() -> Fraction:
    return Ledger(Settings().ledger).summary("baskets")[0].rho


def itemsets(summary: ItemsetSummary) -> list[dict[str, Any]]:
    return pq.read_table(Path(summary.released) / "itemsets.parquet").to_pylist()


def support(*items: str) -> int:
    return sum({*items} <= {*basket} for basket in baskets())


def test_what_is_released_and_nothing_else(listed: ItemsetSpec) -> None:
    summary = ask(listed)
    found, private = contents(summary.released), str(Settings().private_root).encode()
    assert is_whole(Path(summary.released))
    assert {name for name in found if "/" not in name} == {
        "itemsets.parquet", "itemsets.csv", "request.json", "certificate.json", "README.md", "manifest.json",
    }  # fmt: skip
    assert not any(secret in content for content in found.values() for secret in (CANARY.encode(), private))
    rows = itemsets(summary)
    assert [r["rank"] for r in rows] == list(range(1, len(rows) + 1)) and len(rows) <= 9
    assert {tuple(r["items"]) for r in rows} >= {("bread",), ("bread", "butter"), ("bread", "milk")}
    for row in rows:
        exact = support(*row["items"])
        assert abs(row["count"] - exact) < 5 * row["count_std_error"]
        assert 0 <= row["low"] <= row["high"] <= 1
    table = pacsv.read_csv(Path(summary.released) / "itemsets.csv")
    assert [json.loads(i) for i in table["items"].to_pylist()] == [r["items"] for r in rows]


def test_ledger_and_certificate_hold_the_whole_price(listed: ItemsetSpec) -> None:
    summary = ask(listed)
    rho = convert_epsilon_to_rho(2.0, 1e-9, "tight")
    certificate = Certificate.model_validate_json(contents(summary.released)["certificate.json"])
    assert Fraction(certificate.rho_budget) == rho
    assert [s.step for s in certificate.stages] == ["item_counts", "pair_counts", "basis_marginals"]
    assert sum(Fraction(s.rho_budget) for s in certificate.stages) == rho
    assert spent() == sum(Fraction(s.rho_budget) for s in certificate.stages if s.groups) <= rho
    sensitivities = {s.step: [g.sensitivity for g in s.groups] for s in certificate.stages}
    assert sensitivities["item_counts"] == [1, 1, 2]  # the total, the rank, and the root of four items
    assert summary.drawn[:2] == ("item_counts", "pair_counts")
    assert certificate.unit_of_protection == "one person with one transaction (declared in the spec)"
    assert "adding or removing one person with one transaction" in contents(summary.released)["README.md"].decode()


def test_the_same_again_draws_nothing_and_gives_the_same_bytes(listed: ItemsetSpec) -> None:
    first, cost = ask(listed), spent()
    before = contents(first.released)
    again = ask(listed)
    assert (again.run, again.drawn, spent(), contents(again.released)) == (first.run, (), cost, before)
    assert ask(listed, fresh=True).run != first.run
    assert spent() > cost


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text", "wide", "wide csv", "pairs", "pairs csv"])
def test_every_layout_counts_the_same(listed: ItemsetSpec, places: Path, kind: str) -> None:
    """Without noise, all layouts of one table give the itemsets that brute force counts."""
    held = baskets()
    pairs = [(f"t{i}", item) for i, basket in enumerate(held) for item in basket] + [("t7", held[7][0])]
    pairs = [pairs[i] for i in np.random.default_rng(0).permutation(len(pairs))]
    empty = [(f"t{i}", None) for i, basket in enumerate(held) if not basket]
    made: dict[str, tuple[pa.Table, dict[str, Any]]] = {
        "text": (pa.table({"b": [" ; ".join(b) for b in held]}), {"kind": "list", "column": "b"}),
        "wide": (pa.table({i: [i in b for b in held] for i in ITEMS}), {"kind": "wide"}),
        "pairs": (
            pa.table({"id": [p[0] for p in pairs + empty], "what": [p[1] for p in pairs + empty]}),
            {"kind": "pairs", "transaction": "id", "item": "what"},
        ),
    }
    table, layout = made[kind.split()[0]]
    if kind.endswith("csv"):
        place = places / "made.csv"
        pacsv.write_csv(table, place)
    else:
        place = places / "made.parquet"
        pq.write_table(table, place)
    exact = ask(asked(place, layout, dataset="others", max_items=7), noise=NoNoise())
    wanted = ask(listed.model_copy(update={"max_items": 7}), noise=NoNoise())
    assert itemsets(exact) == itemsets(wanted)
    for row in itemsets(exact):
        assert row["count"] == pytest.approx(support(*row["items"]))
        assert row["support"] == pytest.approx(support(*row["items"]) / 400)
    assert Path(exact.released).is_relative_to(Settings().private_root)
    assert "NOT PRIVATE" in (Path(exact.released) / "README.md").read_text()


def test_a_share_asks_for_all_that_have_it(listed: ItemsetSpec) -> None:
    found = ask(listed.model_copy(update={"top": None, "at_least": 0.5, "max_items": 7, "largest": 2}), noise=NoNoise())
    pairs = [("bread", "butter"), ("bread", "milk"), ("butter", "milk"), ("bread", "cheese")]
    wanted = {s for s in [(item,) for item in ITEMS] + pairs if support(*s) >= 200}
    assert {tuple(r["items"]) for r in itemsets(found)} == wanted and ("butter", "milk") in wanted
    assert all(r["support"] >= 0.5 for r in itemsets(found))


def test_a_request_above_the_cap_is_refused_and_nothing_is_read(
    listed: ItemsetSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(listed)
    cost = spent()
    monkeypatch.setattr(
        "privsyn.extras.itemsets.steps.Transactions.from_arrow", lambda *a: pytest.fail("rows were read")
    )
    with pytest.raises(BudgetRefusedError):
        ask(listed.model_copy(update={"privacy": listed.privacy.model_copy(update={"epsilon": 50.0})}))
    assert spent() == cost


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"layout": {"kind": "list", "column": "bag"}}, "layout", "bag"),
        ({"layout": {"kind": "heap"}}, "layout", "kind: list"),
        ({"layout": {"kind": "wide"}}, "layout", "does not have"),
        ({"layout": {"kind": "pairs", "transaction": "till", "item": "basket"}}, "layout", "holds no items"),
        ({"items": ["bread"]}, "items", "fewer than two"),
        ({"items": ["bread", "bread"]}, "items", "more than once"),
        ({"items": ["bread", 4.5]}, "items[1]", "text"),
        ({"top": None}, "", "either `top`"),
        ({"at_least": 0.1}, "", "either `top`"),
        ({"max_items": 0}, "max_items", "at least 1"),
        ({"most": 5}, "most", "not a field"),
        ({"transactions_per_person": None}, "transactions_per_person", "whole number"),
        ({"data": "nowhere.parquet"}, "data", "nowhere"),
        ({"privacy": {"epsilon": 1e-12, "delta": 1e-9}}, "privacy.epsilon", "larger epsilon"),
    ],
)
def test_wrong_requests_are_refused_by_name(
    listed: ItemsetSpec, changes: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(RequestError) as refused:
        ask(check_itemset_spec({**listed.model_dump(exclude_none=True), **changes}))
    assert refused.value.field == field
    assert words in str(refused.value)
    assert CANARY not in str(refused.value)
    assert not list(Settings().released_root.glob("*"))


def test_only_release_steps_and_the_transform_look_at_transactions(listed: ItemsetSpec) -> None:
    private = {s.name for s in build_itemset_steps(listed) if any(i.startswith("transactions.") for i in s.inputs)}
    assert private == {s.name for s in build_itemset_steps(listed) if s.kind is StepKind.RELEASE}


def test_noise_stands_in_every_count_and_a_mutant_without_is_found(
    listed: ItemsetSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted mutant: the counts of single items are published as they are."""
    whole = listed.model_copy(update={"max_items": 7})

    def equal_counts() -> int:
        summary = ask(whole, fresh=True)
        noisy = pq.read_table(Path(summary.released) / "marginals" / "item_counts.parquet")
        found = [r["count"] for r in noisy.to_pylist() if r["query"] == 2]
        return sum(y == support(item) for item, y in zip(ITEMS, found, strict=True))

    assert equal_counts() < len(ITEMS) / 2
    draws = Run._draw_noise

    def quiet(shell: Any, queries: Any) -> Any:
        return [
            np.zeros_like(d) if q.attributes == ("items",) else d
            for q, d in zip(queries, draws(shell, queries), strict=True)
        ]

    monkeypatch.setattr(Run, "_draw_noise", quiet)
    assert equal_counts() == len(ITEMS)


def test_a_killed_look_is_finished_on_its_draw(listed: ItemsetSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    read: Callable[..., Any] = ReleaseStep.read_rows

    def broken(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("privsyn.extras.itemsets.steps.TransactionLook.read_rows", broken)
    with pytest.raises(KeyboardInterrupt):
        ask(listed)
    assert read is ReleaseStep.read_rows
    cost = spent()
    monkeypatch.undo()
    monkeypatch.setenv("PRIVSYN_OUT", str(Path(listed.data).parent / "out"))
    monkeypatch.setenv("PRIVSYN_LEDGER", str(Path(listed.data).parent / "ledger.sqlite"))
    ask(listed)
    assert spent() <= max(cost, convert_epsilon_to_rho(2.0, 1e-9, "tight"))


def test_the_command_runs_the_example(places: Path) -> None:
    names = ["apples", "bread", "butter", "cheese", "coffee"]
    held = [";".join(names[: 1 + i % 5]) for i in range(600)]
    pacsv.write_csv(pa.table({"basket": held, "till": ["x"] * 600}), places / "baskets.csv")
    (places / "itemsets.yaml").write_text((ROOT / "examples" / "itemsets.yaml").read_text())
    done = command("itemsets", places / "itemsets.yaml", "--json")
    assert done.exit_code == 0, done.stderr
    summary = ItemsetSummary.model_validate_json(done.stdout)
    assert ["apples"] in [r["items"] for r in itemsets(summary)]
    again = command("itemsets", places / "itemsets.yaml", "--json")
    assert json.loads(again.stdout)["drawn"] == [] and "Cost: nothing" in again.stderr
    shown = command("itemsets", places / "itemsets.yaml")
    assert "apples" in shown.stdout and "Cost: nothing" in shown.stdout and "apples" not in shown.stderr
    spec = (places / "itemsets.yaml").read_text().replace("dataset: baskets", "dataset: trolleys")
    (places / "other.yaml").write_text(spec)
    refused = command("itemsets", places / "other.yaml")
    assert refused.exit_code == 2 and "--new-dataset" in refused.stderr
    assert command("itemsets", places / "other.yaml", "--new-dataset", "other people").exit_code == 0
    wrong = command("query", Path(summary.released), "bread")
    assert wrong.exit_code == 2 and "is a release of itemsets by" in wrong.stderr


def test_the_universe_may_lie_in_a_file(listed: ItemsetSpec, places: Path) -> None:
    (places / "items.txt").write_text("\n".join(ITEMS) + "\n")
    content = listed.model_dump(mode="json", exclude={"items"}, exclude_none=True) | {"items_file": "items.txt"}
    (places / "spec.json").write_text(json.dumps(content))
    assert load_itemset_spec(places / "spec.json").items == tuple(ITEMS)
    (places / "items.txt").write_text("bread\nbread\n")
    with pytest.raises(RequestError, match="more than once"):
        load_itemset_spec(places / "spec.json")
    (places / "items.txt").unlink()
    with pytest.raises(RequestError, match=r"^items_file: "):
        load_itemset_spec(places / "spec.json")


def test_a_universe_that_was_not_read_is_refused(listed: ItemsetSpec) -> None:
    with pytest.raises(RequestError, match="load_itemset_spec") as refused:
        ask(listed.model_copy(update={"items": (), "items_file": "items.txt"}))
    assert refused.value.field == "items_file"


def test_numbers_of_16_bits_are_read(places: Path) -> None:
    held = [b for b in baskets() if b]
    numbers = np.repeat(np.arange(len(held)), [len(b) for b in held]).astype(np.float16)
    made = {"id": pa.array(numbers, pa.float16()), "what": [item for b in held for item in b]}
    pq.write_table(pa.table(made), places / "half.parquet")
    layout = {"kind": "pairs", "transaction": "id", "item": "what"}
    exact = ask(asked(places / "half.parquet", layout, max_items=7), noise=NoNoise())
    assert all(r["count"] == pytest.approx(support(*r["items"])) for r in itemsets(exact))


@pytest.mark.parametrize("cap", ["gaussian", "tight"])
def test_a_request_that_names_no_accountant_follows_the_cap(listed: ItemsetSpec, cap: CapAccountant) -> None:
    Ledger(Settings().ledger).register("baskets", listed.budget, cap)
    made = ask(listed)
    certificate = Certificate.model_validate_json((Path(made.released) / "certificate.json").read_text())
    assert certificate.accountant == cap
    again = ask(listed)
    assert (again.run, again.drawn, spent()) == (made.run, (), convert_epsilon_to_rho(2.0, 1e-9, cap))


def test_the_manifest_states_the_request_and_verify_compares_the_receipts(listed: ItemsetSpec) -> None:
    folder = Path(ask(listed).released)
    manifest = read_manifest(folder)
    assert (manifest.spec, manifest.column_order, manifest.seeds) == (
        {**listed.public(), "accountant": "tight"},
        [],
        {},
    )
    assert LedgerView(Settings()).verify().problems == ()
    file = folder / "marginals" / "pair_counts_receipts.parquet"
    table = pq.read_table(file)
    pq.write_table(table.slice(table.num_rows), file)
    problems = LedgerView(Settings()).verify().problems
    assert any("the receipts of pair_counts do not cost" in p for p in problems)


NOT_ALLOWED = {"no output": ("", "dataset"), "a period": ("outputs: [itemsets]\n    period: month", "release.period")}


@pytest.mark.parametrize("what", NOT_ALLOWED)
def test_a_policy_that_does_not_allow_itemsets_refuses_them(
    listed: ItemsetSpec, places: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    more, field = NOT_ALLOWED[what]
    rules = "paths: [.]\n    budget: {epsilon: 9, delta: 1.0e-8}\n    epsilon: 2\n    delta: 1.0e-9\n    "
    monkeypatch.setenv("PRIVSYN_POLICY", str(places / "policy.yaml"))
    (places / "policy.yaml").write_text(f"datasets:\n  baskets:\n    {rules}{more}\n")
    with pytest.raises(RequestError) as refused:
        ask(listed)
    assert refused.value.field == field
    (places / "policy.yaml").write_text(f"datasets:\n  baskets:\n    {rules}outputs: [itemsets]\n")
    assert ask(listed).itemsets


@pytest.mark.parametrize("arguments", [("query", "bread"), ("evaluate",), ("improve", "--epsilon", "1"), ("rerun",)])
@pytest.mark.parametrize("by_path", keep_first([False, True]))
def test_commands_for_tables_say_what_the_folder_is(
    listed: ItemsetSpec, arguments: tuple[str, ...], by_path: bool
) -> None:
    summary = ask(listed)
    name, *rest = arguments
    found = command(name, summary.released if by_path else summary.run, *rest)
    assert found.exit_code == 2, found.output
    words = " ".join(found.stderr.split())
    assert f"{summary.run} is a release of itemsets by `privsyn itemsets`, not of a table. Open the files" in words


def test_an_itemset_run_is_not_improved_where_its_folder_is_gone(listed: ItemsetSpec) -> None:
    with pytest.raises(RequestError, match="is a release of itemsets"):
        note_of(ask(listed).run, Settings())
