"""``privsyn ledger verify`` and ``export``: the ledger against itself, against the certificates, and as a file."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from privsyn.base.settings import Settings
from privsyn.ledgers.audit import GENESIS
from privsyn.ledgers.ledger import Ledger
from tests.support.commands import privsyn
from tests.support.places import FIXTURES, ROOT
from tests.support.releases import release_in_process
from tests.support.specs import COLUMNS, make_spec, people
from tests.support.tampering import tamper

CHANGED = "its files differ from its manifest"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one release, its private zone and its ledger."""
    folder = tmp_path_factory.mktemp("made")
    pq.write_table(people(300).select(["age", "region", "happy"]), folder / "people.parquet")
    columns = {name: COLUMNS[name] for name in ("age", "region", "happy")}
    spec = make_spec(columns, data=str(folder / "people.parquet"), synthesis={"sweeps": 1})
    release_in_process(spec, Settings(out=folder / "out", ledger=str(folder / "ledger.sqlite")))
    (folder / "out").rename(folder / "kept")  # nothing is where the ledger remembers it
    return folder


def test_a_certificate_of_before_is_weaker_and_verify_says_so(release: Path) -> None:
    rewrite(release, lambda c: c.pop("ledger"))
    assert found() == []
    answer = json.loads(privsyn("ledger", "verify", "--json").stdout)
    assert "1 of 1 certificates name no entry of the ledger" in answer["notes"][0]


@pytest.fixture
def release(made: Path, places: Path) -> Path:
    """A copy of that release to damage: its published folder."""
    shutil.copytree(made / "kept", places / "out")
    shutil.copy(made / "ledger.sqlite", places / "ledger.sqlite")
    (folder,) = (places / "out" / "released").iterdir()
    return folder


def found(*words: str) -> list[str]:
    """The problems that are found; the words must be among them, and the exit code 1."""
    result = privsyn("ledger", "verify", "--json")
    answer = json.loads(result.stdout)
    assert result.exit_code == (1 if words else 0)
    assert answer["verified"] is not bool(words)
    for word in words:
        assert any(word in problem for problem in answer["problems"]), (word, answer["problems"])
    return list(answer["problems"])


def rewrite(release: Path, change: Callable[[dict[str, Any]], None], *, manifest: bool = True) -> None:
    """Change the certificate; and its hash in the manifest, as somebody would who wants it to look right."""
    path = release / "certificate.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    if manifest:
        listed = json.loads((release / "manifest.json").read_text())
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        listed["files"]["certificate.json"] = {"sha256": digest, "bytes": path.stat().st_size}
        (release / "manifest.json").write_text(json.dumps(listed))


def url() -> str:
    return f"sqlite:///{Settings().ledger}"


def test_a_release_and_its_ledger_agree(release: Path) -> None:
    result = privsyn("ledger", "verify")
    assert result.exit_code == 0, result.output
    assert "Verified" in result.stdout
    assert "1 data sets, 6 entries, 1 certificates" in " ".join(result.stdout.split())
    assert found() == []
    assert privsyn("ledger", "verify", "people").exit_code == 0
    assert privsyn("ledger", "verify", "strangers").exit_code == 2


def test_without_the_private_zone_charges_are_found_by_the_runs_name(release: Path) -> None:
    shutil.rmtree(Settings().private_root)
    assert found() == []


def test_a_run_that_rests_on_the_charges_of_another_agrees(places: Path, save: Callable[..., str]) -> None:
    columns = {name: COLUMNS[name] for name in ("age", "region")}
    data = save(people(200).select(["age", "region"]))
    for seed in (0, 1):
        release_in_process(make_spec(columns, data=data, synthesis={"sweeps": 1, "seed": seed}), Settings())
    assert found() == []
    answer = json.loads(privsyn("ledger", "verify", "--json").stdout)
    assert (answer["certificates"], answer["entries"], answer["notes"]) == (2, 6, [])


def halve(content: dict[str, Any], place: str) -> None:
    content[place] = str(Fraction(content[place]) / 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: halve(c["stages"][0], "rho_budget"), ("charged another rho", "do not sum to the certificate's")),
        (lambda c: halve(c["stages"][2], "rho_spent"), ("do not sum to its rho_spent", "do not cost")),
        (lambda c: halve(c, "rho_budget"), ("do not sum to the certificate's rho_budget",)),
        (lambda c: halve(c["stages"][0]["groups"][0], "rho_each"), ("do not sum to its rho_spent",)),
        (lambda c: c["stages"][0]["groups"].clear(), ("do not sum to its rho_spent",)),
        (lambda c: c["stages"].pop(), ("do not sum to the certificate's rho_budget",)),
        (lambda c: halve(c["dataset_total"], "rho_cap"), ("another lifetime cap",)),
        (lambda c: c["dataset_total"].update(rho="99"), ("entries are missing",)),
        (lambda c: c.update(dataset="strangers"), ("'strangers', which the ledger does not know",)),
        (lambda c: c.update(run="people-00000000"), ("lies in the folder", "no charge")),
        (lambda c: c["stages"][1].update(rho_budget="one"), ("a text that is not a number",)),
        (lambda c: c.update(schema_version=7), ("has schema version 7, and this program knows",)),
        (lambda c: c.pop("stages"), ("is not the certificate of a release",)),
    ],
)
def test_a_certificate_that_says_something_else_is_found(
    release: Path, change: Callable[[dict[str, Any]], None], words: tuple[str, ...]
) -> None:
    rewrite(release, change)
    assert CHANGED not in str(found(*words))


def test_a_changed_file_is_found(release: Path) -> None:
    rewrite(release, lambda c: c.update(price="cheap"), manifest=False)
    found(CHANGED)


def test_receipts_that_cost_something_else_are_found(release: Path) -> None:
    file = release / "marginals" / "measured_receipts.parquet"
    table = pq.read_table(file)
    sigma = table.column_names.index("sigma")
    field = table.schema.field(sigma)
    pq.write_table(table.set_column(sigma, field, pc.multiply(table["sigma"], 2.0)), file)
    found(CHANGED, "the receipts of measure_marginals cannot be read, or state a price that their noise")
    pq.write_table(table.slice(1), file)
    found(CHANGED, "the receipts of measure_marginals do not cost")
    file.write_bytes(b"PAR1")
    found("the receipts of measure_marginals cannot be read")


def test_a_certificate_that_is_not_readable_is_found(release: Path) -> None:
    (release / "certificate.json").write_bytes(b"\xff{")
    found("no readable certificate")


def answer_of(*options: Any) -> dict[str, Any]:
    """What a verification answers; its exit code tells of problems and of nothing else."""
    result = privsyn("ledger", "verify", "--json", *options)
    content = dict(json.loads(result.stdout))
    assert result.exit_code == (1 if content["problems"] else 0)
    return content


def test_charges_of_folders_that_are_not_here_are_asked_for(release: Path, made: Path, places: Path) -> None:
    """Elsewhere nothing is compared, which is said and is no problem; the folders are compared when they are named."""
    answer = answer_of("--out", places / "elsewhere")
    assert (answer["verified"], answer["problems"], answer["charges_not_compared"]) == (True, [], 3)
    (note,) = answer["notes"]
    assert note.startswith("3 spent charges of 1 runs of 'people' were compared with nothing")
    assert f"{made / 'out' / 'released'} cannot be seen from here" in note and "--against" in note
    result = privsyn("ledger", "verify", "--out", places / "elsewhere")
    assert result.exit_code == 0 and "PROBLEM" not in result.stdout
    assert "3 spent charges were compared with nothing (see the notes)" in " ".join(result.stdout.split())
    given = release.rename(places / "given-away")
    for folder in (given, places):
        assert answer_of("--out", places / "elsewhere", "--against", folder)["charges_not_compared"] == 0
    for wrong in (places / "out", places / "nothing-here"):
        refused = privsyn("ledger", "verify", "--against", wrong)
        assert refused.exit_code == 2 and "--against" in refused.stderr


def test_a_published_folder_that_is_gone_is_a_problem(release: Path, places: Path) -> None:
    given = release.rename(places / "given-away")
    found(
        f"{release.name}: 3 spent charges of 'people' have no certificate: it was published, and its folder is not in"
    )
    result = privsyn("ledger", "verify")
    assert result.exit_code == 1 and "PROBLEM" in result.stdout and "Verified" not in result.stdout
    assert privsyn("ledger", "verify", "--against", given).exit_code == 0


def into(places: Path, name: str, epsilon: float) -> Path:
    """A release into an output folder of its own, charged to the one ledger; what it published."""
    pq.write_table(people(200).select(["age", "region"]), places / "people.parquet")
    columns = {column: COLUMNS[column] for column in ("age", "region")}
    privacy = {"epsilon": epsilon, "delta": 1e-9}
    spec = make_spec(columns, data=str(places / "people.parquet"), privacy=privacy, synthesis={"sweeps": 1})
    return Path(release_in_process(spec, Settings(out=places / name)).released)


@pytest.mark.slow
def test_a_healthy_set_up_with_several_output_folders_has_no_problem(places: Path) -> None:
    """One ledger, three folders: from each, and from one that is empty, every certificate is compared."""
    for name, epsilon in (("one", 1.0), ("two", 0.5), ("three", 0.25)):
        into(places, name, epsilon)
    for name in ("one", "two", "three", "none-yet"):
        answer = answer_of("--out", places / name)
        assert (answer["problems"], answer["notes"]) == ([], [])
        assert (answer["certificates"], answer["charges_without_certificate"]) == (3, 0)


@pytest.mark.slow
def test_a_problem_in_another_output_folder_is_one(places: Path) -> None:
    into(places, "one", 1.0)
    other = into(places, "two", 0.5)
    changed = other / "certificate.json"
    text = changed.read_text()
    changed.write_text(text.replace("people", "strangers", 1))
    assert any("differ from its manifest" in p for p in answer_of("--out", places / "one")["problems"])
    changed.write_text(text)
    assert answer_of("--out", places / "one")["problems"] == []
    other.rename(places / "away")
    (problem,) = answer_of("--out", places / "one")["problems"]
    assert problem.endswith(f"it was published, and its folder is not in {places / 'two' / 'released'}")
    shutil.rmtree(places / "two" / "private" / "runs" / other.name)
    (problem,) = answer_of("--out", places / "one")["problems"]
    assert "knows the run any more" in problem
    shutil.rmtree(places / "two")  # on another computer, say
    answer = answer_of("--out", places / "one")
    assert (answer["problems"], answer["charges_not_compared"]) == ([], 3)


@pytest.mark.parametrize("asked", ["two", "one"], ids=["in its own folder", "in another folder"])
def test_a_run_that_was_not_finished_is_a_note(places: Path, monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    with monkeypatch.context() as once:
        once.setattr("privsyn.publish.folder.publish", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            into(places, "two", 0.5)
    answer = answer_of("--out", places / asked)
    assert (answer["problems"], answer["charges_without_certificate"]) == ([], 3)
    assert "the run was not finished" in answer["notes"][0]


def test_charges_of_earlier_versions_name_no_folder_and_are_asked_for(places: Path) -> None:
    shutil.copy(FIXTURES / "0.2.0" / "ledger.sqlite", Settings().ledger)
    Path(Settings().ledger).chmod(0o600)
    answer = answer_of()
    assert (answer["verified"], answer["problems"]) == (True, [])
    assert answer["charges_not_compared"] == answer["charges_without_certificate"] > 0
    assert all("an earlier version noted no folder: name the released folders" in note for note in answer["notes"])


@pytest.mark.parametrize("private", [True, False])
def test_a_certificate_without_entries_is_found(release: Path, private: bool) -> None:
    if not private:
        shutil.rmtree(Settings().private_root)
    Path(Settings().ledger).unlink()
    Ledger(Settings().ledger).register("people", make_spec().budget)
    found("has no charge for its one_way_marginals", "has no charge for its measure_marginals", "entries are missing")


def test_without_a_ledger_nothing_is_verified(release: Path) -> None:
    Path(Settings().ledger).unlink()
    for command in ("verify", "export"):
        result = privsyn("ledger", command)
        assert result.exit_code == 1
        assert result.stdout == ""
        assert "is missing" in result.stderr
    assert not Path(Settings().ledger).exists()


def cut_marks(kept: int) -> None:
    """Cut off all but the first ``kept`` marks, with their count and last hash."""
    rows = Ledger(Settings().ledger).marks()
    head = rows[kept - 1].hash if kept else GENESIS
    tamper(url(), f"DELETE FROM marks WHERE id > {kept}")
    tamper(url(), f"UPDATE mark_chain SET rows = {kept}, head = '{head}'")


def test_a_tail_that_was_cut_off_with_its_count_is_found_by_the_certificate(release: Path) -> None:
    """Whoever rewrites the ledger's own row as well leaves a chain that is whole: the certificate knows more."""
    entries = Ledger(Settings().ledger).entries()
    tamper(url(), "DELETE FROM entries WHERE id > 2")
    found("its own count and last hash say 6")
    tamper(url(), f"UPDATE ledger SET entries = 2, head = '{entries[1].hash}'")
    found("is a draw without a charge")
    cut_marks(2)
    assert Ledger(Settings().ledger).verify() == []
    found("has no charge for its measure_marginals", "entries are missing", "the ledger had entry 6 when")


def snapshot(places: Path, name: str) -> None:
    """Keep the ledger and both zones as they are."""
    shutil.copytree(places / "out", places / name / "out")
    shutil.copy(Settings().ledger, places / name)


def roll_back(places: Path, name: str) -> None:
    """Put the ledger and both zones back together, at their own place."""
    shutil.rmtree(places / "out")
    shutil.copytree(places / name / "out", places / "out")
    shutil.copy(places / name / "ledger.sqlite", Settings().ledger)


def test_a_ledger_rolled_back_with_its_folders_is_found_by_what_was_given_away(places: Path) -> None:
    """One snapshot of ledger and both zones agrees with itself; a certificate elsewhere remembers what came later."""
    first = into(places, "out", 1.0)
    snapshot(places, "before")
    second = into(places, "out", 0.5)
    shutil.copytree(first, places / "given" / first.name)
    given = shutil.copytree(second, places / "given" / second.name)
    assert privsyn("ledger", "verify", "--against", places / "given").exit_code == 0
    roll_back(places, "before")
    assert found() == [], "nothing here remembers"
    result = privsyn("ledger", "verify", "--against", places / "given", "--json")
    problems = json.loads(result.stdout)["problems"]
    assert result.exit_code == 1
    assert any(p.startswith(f"{given.name}: the ledger had entry 12 when it was published") for p in problems)
    assert not any(first.name in p for p in problems)
    into(places, "out", 0.25)  # grown again to as many entries: another history
    assert len(Ledger(Settings().ledger).entries()) == 12
    again = privsyn("ledger", "verify", "--against", given, "--json")
    assert again.exit_code == 1 and "another history" in again.stdout


def test_mutant_a_head_that_is_not_looked_for(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted mutant: only counts are compared; the check above, of a ledger that has grown again, fails on it."""
    monkeypatch.setattr(
        "privsyn.api.ledger_comparison._check_heads",
        lambda certificate, entries: [] if len(entries) >= certificate.ledger.entries else ["another history"],
    )
    into(places, "out", 1.0)
    snapshot(places, "before")
    given = shutil.copytree(into(places, "out", 0.5), places / "given")
    roll_back(places, "before")
    into(places, "out", 0.25)
    assert "another history" not in privsyn("ledger", "verify", "--against", given, "--json").stdout


def test_folders_of_one_run_with_different_noise_are_found(release: Path, places: Path) -> None:
    """What two copies of a private folder and of a ledger, restored together, draw for one charge each."""
    copy = shutil.copytree(release, places / "given")
    assert privsyn("ledger", "verify", "--against", copy).exit_code == 0
    table = pq.read_table(copy / "marginals" / "one_way.parquet")
    pq.write_table(table.slice(1), copy / "marginals" / "one_way.parquet")
    manifest = json.loads((copy / "manifest.json").read_text())
    path = copy / "marginals" / "one_way.parquet"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest["files"]["marginals/one_way.parquet"] = {"sha256": digest, "bytes": path.stat().st_size}
    (copy / "manifest.json").write_text(json.dumps(manifest))
    result = privsyn("ledger", "verify", "--against", copy)
    assert result.exit_code == 1 and "a charge has covered two draws" in " ".join(result.stdout.split())


def test_swapped_entries_are_found(release: Path) -> None:
    for old, new in ((4, 99), (5, 4), (99, 5)):
        tamper(url(), f"UPDATE entries SET id = {new} WHERE id = {old}")
    found("entry 4 or its data set's cap was changed")


# the export


def chain(content: dict[str, Any]) -> str:
    """The last hash of an export, recomputed as docs/operations/ledger.md says, without this program."""
    caps = {d["dataset"]: [d["epsilon"], d["delta"], d["rho"], d["created"]] for d in content["datasets"]}
    last = "0" * 64
    for entry in content["entries"]:
        row = {name: value for name, value in entry.items() if name != "hash"}
        row["detail"] = json.dumps(row["detail"], sort_keys=True, separators=(",", ":"))
        assert row["prev_hash"] == last
        text = json.dumps({**row, "cap": caps[row["dataset"]]}, sort_keys=True, separators=(",", ":"))
        last = hashlib.sha256(text.encode()).hexdigest()
        assert last == entry["hash"]
    return last


def test_the_json_export_can_be_verified_without_this_program(release: Path) -> None:
    content = json.loads(privsyn("ledger", "export").stdout)
    assert content["schema_version"] == 1
    assert chain(content) == Ledger(Settings().ledger).entries()[-1].hash != GENESIS
    (cap,) = content["datasets"]
    assert Fraction(cap["spent"]) == sum(Fraction(e["rho"]) for e in content["entries"] if e["event"] == "reserve")
    content["entries"][2]["rho"] = "1/3"
    with pytest.raises(AssertionError):
        chain(content)


def test_the_program_in_the_docs_verifies_an_export(release: Path, places: Path) -> None:
    page = (ROOT / "docs" / "operations" / "ledger.md").read_text(encoding="utf-8")
    program = page.split("```python\n")[1].split("```")[0]
    assert privsyn("ledger", "export", "-o", places / "export.json").exit_code == 0
    run = [sys.executable, "-c", program]
    assert subprocess.run(run, cwd=places, check=False).returncode == 0
    text = (places / "export.json").read_text()
    (places / "export.json").write_text(text.replace('"event": "spent"', '"event": "cancel"', 1))
    assert subprocess.run(run, cwd=places, check=False, capture_output=True).returncode == 1


def test_the_csv_export_has_a_line_an_entry(release: Path, places: Path) -> None:
    assert privsyn("ledger", "export", "people", "--format", "csv", "-o", places / "l.csv").exit_code == 0
    rows = list(csv.DictReader(io.StringIO((places / "l.csv").read_text())))
    entries = Ledger(Settings().ledger).entries()
    assert [(r["step"], r["event"], Fraction(r["rho"]), r["hash"]) for r in rows] == [
        (e.step, e.event, e.rho, e.hash) for e in entries
    ]
    assert [float(r["rho_decimal"]) for r in rows] == [float(e.rho) for e in entries]
    assert json.loads(rows[0]["detail"]) == entries[0].detail
    again = privsyn("ledger", "export", "-o", places / "l.csv")
    assert again.exit_code == 2
    assert "exists already" in again.stderr
    assert privsyn("ledger", "export", "strangers").exit_code == 2
    assert privsyn("ledger", "export", "-o", places / "no" / "l.csv").exit_code == 2


def test_a_second_opinion_is_a_file_of_its_own(release: Path, places: Path) -> None:
    """Every receipts table is accounted by both libraries, and nothing else is written."""
    before = {file: file.read_bytes() for file in places.rglob("*") if file.is_file()}
    result = privsyn("ledger", "verify", "--second-opinion", str(places / "opinion.json"))
    assert result.exit_code == 0, result.output
    written = json.loads((places / "opinion.json").read_text())
    assert set(written["libraries"]) == {"opendp", "dp-accounting"}
    (one,) = written["certificates"]
    certificate = json.loads((release / "certificate.json").read_text())
    assert one["epsilon"] == certificate["epsilon"] and one["delta"] == certificate["delta"]
    assert set(one["receipts"]) == {stage["step"] for stage in certificate["stages"]}
    assert "marginals/one_way_receipts.parquet" in one["receipts"].values()
    assert one["opendp_epsilon"] == pytest.approx(certificate["epsilon"], rel=1e-5)
    assert 0.9 * one["opendp_epsilon"] < one["pld_epsilon_at_least"] <= one["pld_epsilon"] < one["renyi_epsilon"]
    assert written["problems"] == []
    assert {file: file.read_bytes() for file in before} == before
    assert (
        privsyn("ledger", "verify", "--second-opinion", str(places / "opinion.json")).exit_code == 2
    )  # it is there already


def test_a_second_opinion_contradicts_a_certificate_that_states_too_little(release: Path, places: Path) -> None:
    rewrite(release, lambda c: c.update(epsilon=c["epsilon"] / 2))
    result = privsyn("ledger", "verify", "--second-opinion", str(places / "opinion.json"), "--json")
    problems = json.loads((places / "opinion.json").read_text())["problems"]
    assert any("dp-accounting finds epsilon" in problem for problem in problems)
    assert set(problems) <= set(json.loads(result.stdout)["problems"])
    assert result.exit_code == 1


def test_a_second_opinion_needs_its_extra(release: Path, places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    result = privsyn("ledger", "verify", "--second-opinion", str(places / "opinion.json"))
    assert result.exit_code == 2 and "privsyn-flows[second-opinion]" in result.output
    assert not (places / "opinion.json").exists()
