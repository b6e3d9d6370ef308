"""Questions to a released folder: by the API and the command, from the folder alone, and of no changed file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import privsyn
from privsyn.answers.questions import ParsedQuestion, parse, parse_difference
from tests.support.commands import privsyn as command
from tests.support.places import FIXTURES

RELEASED = FIXTURES / "0.2.0" / "out" / "released"
FOLDER, OLD = RELEASED / "people-93608a96", RELEASED / "people-paper-3f435b55"
COLUMNS = ["estimate", "std_error", "low", "high", "source"]


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A released folder in a place with nothing else, and no ledger that could be reached."""
    monkeypatch.setenv("PRIVSYN_LEDGER", str(tmp_path / "none" / "ledger.sqlite"))
    monkeypatch.setenv("PRIVSYN_OUT", str(tmp_path / "none"))
    return Path(shutil.copytree(FOLDER, tmp_path / FOLDER.name))


def test_the_folder_alone_answers(alone: Path) -> None:
    r = privsyn.open_release(alone)
    counted = r.count("region", "happy", where="age >= 40")
    assert list(counted.columns) == ["region", "happy", *COLUMNS]
    assert r.count().loc[0, "source"] == "measured"
    assert set(r.share("region").region) >= {"north", "south", "east", "other"}
    assert r.share("region").estimate.sum() == pytest.approx(1, abs=0.02)
    mean = r.mean("income", by="region")
    assert (mean.low.le(mean.estimate) | mean.source.eq("not known")).all() and mean.source.eq("implied").sum() >= 3
    assert list(r.quantile("income", [0.1, 0.5]).probability) == [0.1, 0.5]
    assert list(r.correlation("age", "income").a) == ["age"]
    assert "no standard error" in " ".join(counted.attrs["words"]) or (counted.source != "model").all()
    assert not (alone.parent / "none").exists()


def test_a_changed_file_is_refused_and_only_where_it_is_needed(alone: Path) -> None:
    (alone / "synthetic.parquet").write_bytes(b"other")
    assert privsyn.open_release(alone).count("region").source.eq("measured").all()
    (alone / "marginals" / "one_way.parquet").write_bytes((alone / "marginals" / "measured.parquet").read_bytes())
    with pytest.raises(privsyn.RequestError, match=r"one_way\.parquet of .* is missing or was changed"):
        privsyn.open_release(alone).count("region")
    done = command("query", alone, "region")
    assert done.exit_code == 2 and done.stdout == "" and done.stderr.startswith("privsyn: RELEASE: marginals/one_way")


def test_an_edited_certificate_opens_nothing(alone: Path) -> None:
    certificate = alone / "certificate.json"
    certificate.write_text(certificate.read_text().replace('"epsilon":', '"epsilon": 0.01, "was":', 1))
    with pytest.raises(privsyn.RequestError, match=r"certificate\.json of .* was changed after its publication"):
        privsyn.open_release(alone)


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("synthetic.parquet", lambda r: r.table),
        ("synthetic.parquet", lambda r: r.to_pandas()),
        ("synthetic.parquet", lambda r: r._repr_html_()),
        ("README.md", lambda r: r.note),
        ("marginals/consistent.parquet", lambda r: r.marginals),
    ],
)
def test_an_edited_file_is_shown_to_nobody(alone: Path, name: str, use: Callable[[privsyn.Release], object]) -> None:
    assert use(privsyn.open_release(alone)) is not None
    (alone / name).write_bytes((alone / name).read_bytes() + b" ")
    with pytest.raises(privsyn.RequestError, match=f"{name} of .* was changed after its publication"):
        use(privsyn.open_release(alone))


def test_the_command_prints_a_table_json_csv_and_a_picture(alone: Path, tmp_path: Path) -> None:
    shown = command("query", alone, "region where age >= 40", "--plot", tmp_path / "p.svg")
    assert shown.exit_code == 0 and "north" in shown.stdout and "population" in shown.stderr
    assert (tmp_path / "p.svg").read_text(encoding="utf-8").startswith("<svg")
    found: dict[str, Any] = json.loads(command("query", alone, "mean(income) by region", "--json").stdout)
    assert found["question"] == "mean of income by region" and set(found["answers"][0]) == {"region", *COLUMNS}
    assert found["words"]
    lines = command("query", alone, "share(age < 30 or age is None) by happy", "--csv").stdout.splitlines()
    assert lines[0] == "happy,estimate,std_error,low,high,source"
    other = Path(shutil.copytree(OLD, tmp_path / "earlier"))
    changed = command("query", alone, "region", "--earlier", other)
    assert changed.exit_code == 0 and "north" in changed.stdout


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("nobody", "no column 'nobody'"),
        ("region where age > 500", "selection is empty"),
        ("region where", "no condition after"),
        ("region where age = 3", "not an expression"),
        ("sum(age) by region", "is not a question"),
        ("mean(region)", "holds no numbers"),
        ("mean()", "names no column"),
        ("quantile(age, most)", "is not a number"),
        ("quantile(age, 2)", "QUESTION: 2 is not between 0 and 1"),
        ("correlation() by region", "takes neither"),
        ("correlation(age)", "two columns of numbers"),
        ("correlation(age, age)", "one column twice"),
        ("count by", "no column after `by`"),
        ("regress(age)", "not of the form"),
        ("regress(region ~ age)", "does not hold two values"),
    ],
)
def test_a_wrong_question_gets_one_sentence_and_exit_2(alone: Path, question: str, words: str) -> None:
    done = command("query", alone, question)
    assert done.exit_code == 2 and done.stdout == ""
    assert words in done.stderr and len(done.stderr.splitlines()) == 1


def test_intervals_about_the_population_are_wider(alone: Path) -> None:
    r = privsyn.open_release(alone)
    for ask in (lambda **p: r.count("region", **p), lambda **p: r.share("region", **p), lambda **p: r.mean("age", **p)):
        one, other = ask(), ask(population=True)
        assert (other.high - other.low > one.high - one.low).all() and (one.estimate == other.estimate).all()
        assert "random sample" in other.attrs["words"][-1]
    assert "random sample" in command("query", alone, "region", "--population").stderr
    assert command("query", alone, "median(age)", "--population").exit_code == 2
    assert command("query", alone, "region", "--population", "--earlier", alone).exit_code == 2


def test_two_formats_and_a_wrong_picture_are_refused(alone: Path, tmp_path: Path) -> None:
    assert command("query", alone, "region", "--json", "--csv").exit_code == 2
    assert "neither .png nor .svg" in command("query", alone, "region", "--plot", tmp_path / "p.gif").stderr
    assert command("query", alone, "region", "--level", 2).exit_code == 2
    assert "is the same release" in command("query", alone, "region", "--earlier", alone).stderr
    assert "--earlier: there is no release 'none'" in command("query", alone, "region", "--earlier", "none").stderr
    assert "RELEASE: there is no release ''" in command("query", "", "region").stderr


def test_differences_have_the_wider_interval(alone: Path, tmp_path: Path) -> None:
    later, earlier = privsyn.open_release(alone), privsyn.open_release(OLD)
    one, other = later.count("region"), earlier.count("region")
    changed = later.compare(earlier).count("region")
    assert changed.estimate.tolist() == pytest.approx((one.estimate - other.estimate).tolist())
    assert (changed.high - changed.low >= (one.high - one.low) * 0.99).all()
    assert later.compare(earlier).mean("income").source[0] == "implied"
    asked = parse_difference(later, earlier, "share(`region`)")
    assert asked.equals(later.compare(earlier).share("region"))


def test_a_mean_by_an_independent_column_is_that_of_all_rows(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a level at which no group is sure to have a row, too."""
    monkeypatch.setattr("privsyn.answers.counted.compute_distance", lambda *_: 0.0)
    of_groups, of_all = (privsyn.open_release(alone).mean("age", by=by, level=1 - 1e-15) for by in ("income", ()))
    assert (of_groups.low == of_all.low[0]).all() and (of_groups.high == of_all.high[0]).all()


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("sex, income where age >= 65", ParsedQuestion("count", "", ("sex", "income"), "age >= 65")),
        ("", ParsedQuestion("count", "", (), None)),
        ("count where age >= 65", ParsedQuestion("count", "", (), "age >= 65")),
        ("`count` where age >= 65", ParsedQuestion("count", "", ("count",), "age >= 65")),
        ("count by `a, where b`", ParsedQuestion("count", "", ("a, where b",), None)),
        ("mean(age) by sex where `by` == 'x where y'", ParsedQuestion("mean", "age", ("sex",), "`by` == 'x where y'")),
        ("share(income == '>50K (top)') by sex", ParsedQuestion("share", "income == '>50K (top)'", ("sex",), None)),
    ],
)
def test_a_question_is_read_as_meant(text: str, asked: ParsedQuestion) -> None:
    assert parse(text) == asked
