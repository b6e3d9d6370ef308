"""What an earlier version was paid for is found, verified, made again and not drawn anew without a word."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from privsyn.api.ledger import LedgerView
from privsyn.api.release import propose_release
from privsyn.api.rerun import rerun
from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.base.wording import API
from privsyn.cli.common import COMMAND_LINE
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.admission import check_request
from privsyn.evaluation.quality_release import publish_quality
from privsyn.ledgers.ledger import Ledger
from privsyn.pipelines.registry import plan_release
from privsyn.publish.folder import ReleaseSummary
from privsyn.specs.spec_file import load_spec
from tests.support.examples import keep_first
from tests.support.kept import Kept
from tests.support.releases import release_in_process
from tests.support.snapshots import bytes_of, copied, settings_of
from tests.support.specs import changed

RUN = "people-93608a96"
LOOKS = ("one_way_marginals", "indif_scores", "measure_marginals")
SPLIT = {"one_way": 0.3, "selection": 0.1, "measurement": 0.6}
"""No default of any version."""


@pytest.fixture
def home(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a user of 0.2.0 holds: one paid release of the default spec, one of the paper's."""
    return copied("0.2.0", kept.begin(monkeypatch))


def ask(home: Path, spec: ReleaseSpec | None = None, **how: Any) -> ReleaseSummary:
    """A release, of what the user asked of 0.2.0 unless another is given."""
    return release_in_process(
        spec or load_spec(home / "default.yaml"), settings_of(home), **{"new_dataset": "a test", **how}
    )


def ledger_of(home: Path) -> Ledger:
    return Ledger(settings_of(home).ledger)


def refusal(home: Path, spec: ReleaseSpec | None = None) -> RequestError:
    """The refusal of a release; nothing is spent, read or released for it."""
    settings = settings_of(home)
    folders = settings.released_root, settings.private_root / "store"
    before = ledger_of(home).export(), *map(bytes_of, folders)
    with pytest.raises(RequestError) as refused:
        ask(home, spec)
    assert (
        ledger_of(home).export(),
        bytes_of(settings.released_root),
        bytes_of(settings.private_root / "store"),
    ) == before
    return refused.value


def noted(settings: Settings, run: str) -> tuple[Path, dict[str, Any]]:
    """A run's private note."""
    path = settings.private_root / "runs" / run / "run.json"
    return path, json.loads(path.read_text(encoding="utf-8"))


def made_by(settings: Settings, run: str, earlier: str, **other: Any) -> None:
    """Let a run's note say that an earlier version made it; ``other``: further changes of the note."""
    path, note = noted(settings, run)
    path.write_text(json.dumps({**note, "version": earlier, **other}), encoding="utf-8")


def as_before_0_3(settings: Settings, run: str) -> None:
    """Take from a run all that notes do not have before 0.3.0; its released manifest says the version then."""
    path, note = noted(settings, run)
    path.write_text(
        json.dumps({k: v for k, v in note.items() if k not in ("version", "spec", "asks")}), encoding="utf-8"
    )
    manifest = settings.released_root / run / "manifest.json"
    content = json.loads(manifest.read_text(encoding="utf-8"))
    content["versions"]["privsyn-flows"] = "0.2.0"
    manifest.write_text(json.dumps(content), encoding="utf-8")


AGES: list[Callable[[Settings, str], None]] = [
    lambda settings, run: made_by(settings, run, "0.2.9"),
    as_before_0_3,
]
each_age = pytest.mark.parametrize(
    "grow_old", keep_first(AGES), ids=["note of an earlier version", "note before 0.3.0"]
)


def test_it_is_refused_by_the_earlier_version_and_its_price_and_asks_for_fresh(home: Path) -> None:
    refused = refusal(home)
    today = version("privsyn-flows")
    assert refused.field == "release.fresh"
    assert f"the run {RUN} of version 0.2.0 was paid for this request, and version {today} would draw it anew" in (
        refused.problem
    )
    assert str(refused.problem).endswith("nothing was spent")
    rho = float(plan_release(load_spec(home / "default.yaml")).rho)
    assert f"New noise costs epsilon 3 with delta 1e-09 (rho {rho:.4g}) once more" in str(refused)
    assert "run with --fresh" in refused.paragraph(COMMAND_LINE) and "`fresh=True`" in refused.paragraph(API)
    # The fields whose defaults changed are named.
    assert "(null_values, mechanism.split.one_way, " in refusal(home).problem
    assert "(null_values changed)" in refusal(home, load_spec(home / "paper.yaml")).problem
    # It is drawn with fresh at the price that was named.
    rows = len(ledger_of(home).entries("people"))
    spent = ledger_of(home).summary("people")[0].rho
    made = ask(home, fresh=True)
    assert made.drawn == LOOKS and made.run != RUN
    (after,) = ledger_of(home).summary("people")
    price = after.rho - spent
    assert 0 < price <= plan_release(load_spec(home / "default.yaml")).rho
    assert len(ledger_of(home).entries("people")) == rows + 2 * len(LOOKS)  # reserved and spent
    again = ask(home)
    assert (again.run, again.drawn) == (made.run, ())  # found from now on, and asked without fresh


def changed_spec(home: Path, **fields: Any) -> ReleaseSpec:
    """The default spec with other fields; those of the column age stand under `age`."""
    content = load_spec(home / "default.yaml").model_dump(exclude_unset=True)
    content["columns"]["age"] |= fields.pop("age", {})
    return ReleaseSpec.model_validate({**content, **fields})


OTHER: list[dict[str, Any]] = [
    {"age": {"bins": 13}},
    {"age": {"max": 88}},
    {"age": {"nullable": False}},
    {"privacy": {"epsilon": 2, "delta": 1e-9}},
    {"accountant": "gaussian"},
    {"split": SPLIT},
    {"selection": {"max_cells": 1_000}},
    {"null_values": ["", "NA", "-9"]},
    {"mechanism": "independent"},
    {"mechanism": {"name": "adaptive", "rounds": 1}},
]
SAME: list[dict[str, Any]] = [
    {"synthesis": {"seed": 7, "rows": 50}},
    {"formats": ["parquet", "csv"]},
    {"about": {"title": "People"}},
    {"preset": "default"},
    {"engine": {"kind": "local"}},
    {"age": {"description": "Age in years"}},
    {"accountant": "tight"},  # 0.2.0's own, which nobody had to name
]


@pytest.mark.parametrize("fields", keep_first(OTHER), ids=str)
def test_what_noise_depends_on_makes_another_request(home: Path, fields: dict[str, Any]) -> None:
    assert ask(home, changed_spec(home, **fields)).drawn[0] == "one_way_marginals"


@pytest.mark.parametrize("fields", SAME, ids=str)
def test_what_no_noise_depends_on_makes_no_other_request(home: Path, fields: dict[str, Any]) -> None:
    assert RUN in refusal(home, changed_spec(home, **fields)).problem


def test_other_rows_and_a_period_are_requests_of_their_own(home: Path) -> None:
    assert ask(home, period="2026-09").drawn == LOOKS
    table = pq.read_table(home / "people.parquet")
    pq.write_table(table.slice(1), home / "people.parquet")
    assert ask(home).drawn == LOOKS


ADAPTIVE_LOOKS = (*LOOKS, "residual_scores_2", "measure_again_2")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("synthesis", "drawn"),
    [
        ({"seed": 7, "rows": 60, "shard_rows": 1_000, "oversample": 2}, None),
        ({"seed": 8}, ADAPTIVE_LOOKS),
        ({"seed": 7, "sweeps": 3}, ADAPTIVE_LOOKS),
        ({"seed": 7, "method": "gum"}, ADAPTIVE_LOOKS),
    ],
    ids=str,
)
def test_rows_that_a_later_round_looks_at_are_of_the_request(
    home: Path, synthesis: dict[str, Any], drawn: tuple[str, ...] | None
) -> None:
    """A further round's noise is of its rows so far: their seed and method, and not how many are released at last."""
    content = load_spec(home / "default.yaml").model_dump(exclude_unset=True)
    content = {k: v for k, v in content.items() if k not in ("synthesis", "mechanism")} | {"dataset": "elsewhere"}
    options = {"name": "adaptive", "rounds": 1}
    earlier = {**options, "split": SPLIT, "synthesis": {"seed": 7, "rows": 50}}
    made = ask(home, ReleaseSpec.model_validate({**content, "mechanism": earlier}))
    made_by(settings_of(home), made.run, "0.2.9")
    asked = ReleaseSpec.model_validate({**content, "mechanism": {**options, "synthesis": synthesis}})
    if drawn is None:
        assert made.run in refusal(home, asked).problem
    else:
        assert ask(home, asked).drawn == drawn


@each_age
def test_a_spec_with_open_bins_is_not_drawn_by_the_preset_of_today_in_silence(
    home: Path, grow_old: Callable[[Settings, str], None]
) -> None:
    content = load_spec(home / "default.yaml").model_dump(exclude_unset=True, mode="json")
    content["columns"]["age"] |= {"bins": None, "edges": None}
    asked = {**content, "dataset": "elsewhere"}
    made = ask(home, ReleaseSpec.model_validate({**asked, "preset": "0.3"}))
    grow_old(settings_of(home), made.run)
    today = ReleaseSpec.model_validate({name: value for name, value in asked.items() if name != "mechanism"})
    assert today.mechanism.compression.equal_mass
    problem = refusal(home, today).problem
    assert made.run in problem and "mechanism.compression.equal_mass" in problem
    assert ask(home, ReleaseSpec.model_validate({**asked, "preset": "0.3"})).drawn == ()


@pytest.fixture
def with_split(kept: Kept, home: Path) -> ReleaseSummary:
    """A release of today whose request says more than the default spec, the same for every test that asks for it."""
    asked = changed(load_spec(home / "default.yaml"), split=SPLIT, dataset="elsewhere")
    return kept.once(lambda: ask(home, asked))  # type: ignore[no-any-return]


def default_elsewhere(home: Path) -> ReleaseSpec:
    """The default spec for a data set that 0.2.0 did not know."""
    return changed_spec(home, dataset="elsewhere")


def test_a_run_of_the_same_version_refuses_nothing(home: Path, with_split: ReleaseSummary) -> None:
    assert noted(settings_of(home), with_split.run)[1]["version"] == version("privsyn-flows")
    assert ask(home, default_elsewhere(home)).drawn == LOOKS


@each_age
def test_the_same_run_of_an_earlier_version_does(
    home: Path, with_split: ReleaseSummary, grow_old: Callable[[Settings, str], None]
) -> None:
    grow_old(settings_of(home), with_split.run)
    assert with_split.run in refusal(home, default_elsewhere(home)).problem


def test_a_note_that_was_charged_nothing_or_cannot_be_read_refuses_nothing(
    home: Path, with_split: ReleaseSummary
) -> None:
    settings, run = settings_of(home), with_split.run
    path, note = noted(settings, run)
    made_by(settings, run, "0.2.9", keys=dict.fromkeys(note["keys"], "0" * 64))
    for text in (path.read_text(), json.dumps({**note, "version": "9.0.0", "spec": {"unheard_of": 1}}), "", "[]", "{"):
        path.write_text(text, encoding="utf-8")
        check_request(propose_release(default_elsewhere(home), settings, new_dataset="a test"))
    assert ask(home, default_elsewhere(home)).drawn == LOOKS


@each_age
def test_a_release_of_a_period_was_not_paid_for_another_nor_for_a_release_without(
    home: Path, grow_old: Callable[[Settings, str], None]
) -> None:
    spec = changed(load_spec(home / "default.yaml"), split=SPLIT, dataset="elsewhere")
    made = ask(home, spec, period="2026-11")
    grow_old(settings_of(home), made.run)
    assert ask(home, default_elsewhere(home), period="2026-09").drawn == LOOKS
    assert ask(home, default_elsewhere(home)).drawn == LOOKS


@pytest.mark.slow
@each_age
def test_figures_at_an_epsilon_and_releases_are_not_paid_for_each_other(
    home: Path, with_split: ReleaseSummary, grow_old: Callable[[Settings, str], None]
) -> None:
    """Though both are at the same epsilon, so that their requests' specs are one."""
    figures = publish_quality(with_split.run, 3.0, settings_of(home))
    assert figures.drawn == ("quality_figures",)
    grow_old(settings_of(home), figures.run)
    assert ask(home, default_elsewhere(home)).drawn == LOOKS


def test_figures_of_a_release_of_an_earlier_version_at_its_own_epsilon_are_drawn(home: Path) -> None:
    assert publish_quality(RUN, 3.0, settings_of(home)).drawn == ("quality_figures",)


RUNS = ("people-93608a96", "people-paper-3f435b55")
"""The releases of tests/fixtures/0.2.0; that their requests are not drawn anew: test_redraw_of_earlier_versions.py."""


@pytest.fixture
def as_it_was(tmp_path: Path) -> Path:
    return copied("0.2.0", tmp_path)


def test_the_ledger_has_no_problem(as_it_was: Path) -> None:
    found = LedgerView(settings_of(as_it_was)).verify()
    assert (found.verified, found.problems, found.as_json()["certificates"]) == (True, (), 2)
    assert "2 of 2 certificates name no entry of the ledger, like certificates of earlier versions" in found.notes[0]


@pytest.mark.parametrize("run", keep_first(RUNS))
def test_its_noise_is_taken_as_given_when_it_is_made_again(as_it_was: Path, run: str) -> None:
    told = {file.name: file.words() for file in rerun(run, settings_of(as_it_was)).files}
    looks = [f"marginals/{name}.parquet" for name in ("one_way", "scores", "measured")]
    assert {told[name] for name in looks} == {"agrees (given: nobody can draw it again)"}
