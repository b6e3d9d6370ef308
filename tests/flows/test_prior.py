"""A public prior in a release: what it says, which steps it changes, what is refused; and the mechanism `prior`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

import privsyn
from privsyn.answers.simulated import PRIOR_WARNING
from privsyn.api.check import check
from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.data_contracts.artifacts import StepKind
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.pipelines.registry import plan_release
from privsyn.publish.certificate_of_run import PRIOR_PROMISE
from privsyn.publish.folder import ReleaseSummary
from privsyn.tasks.privacy.noise import NoNoise
from tests.support.documented import read_example
from tests.support.examples import keep_first
from tests.support.releases import few, release_in_process, spent
from tests.support.specs import COLUMNS, make_spec, people, with_public_inputs

pytestmark = pytest.mark.usefixtures("places")

STATEMENT = "People of another register, who published their rows themselves."


def with_public(data: str, folder: Path, rows: Any, **more: Any) -> ReleaseSpec:
    """A spec whose prior is this table, as if its file were read in ``folder``."""
    if rows is not None:
        pq.write_table(rows, folder / "last_year.parquet")
    prior = {"table": "last_year.parquet", "statement": STATEMENT, **more}
    return with_public_inputs(few(data, prior=prior), folder)


def release(spec: ReleaseSpec) -> Any:
    return release_in_process(spec, Settings(), data=None)


def test_a_release_states_its_prior_and_pays_the_same(save: Any, tmp_path: Path) -> None:
    data = save(people(300))
    first = release(few(data))
    paid = spent()
    table = people(200).drop_columns(["caseid"])
    spec = with_public(data, tmp_path, table)
    second = release(spec)
    assert second.run != first.run and second.drawn == ("indif_scores", "measure_marginals")  # one-ways are found again
    assert paid < spent() < 2 * paid
    folder = Path(second.released)
    certificate = json.loads((folder / "certificate.json").read_text())
    assert certificate["prior"] == {
        "statement": STATEMENT, "zeros": False, "sha256": spec.prior.sha256, "promise": PRIOR_PROMISE
    }  # fmt: skip
    plain = json.loads((Path(first.released) / "certificate.json").read_text())
    assert certificate["rho_budget"] == plain["rho_budget"] and certificate["epsilon"] == plain["epsilon"]
    assert "prior" not in plain
    assert (
        STATEMENT in (folder / "README.md").read_text()
        and "Public prior" not in (Path(first.released) / "README.md").read_text()
    )
    assert str(tmp_path) not in (folder / "manifest.json").read_text()
    assert privsyn.open_release(folder).spec.prior.sha256 == spec.prior.sha256
    with pytest.raises(RequestError, match="whose file is not in its folder"):
        privsyn.rerun(folder)
    with pytest.raises(RequestError, match="the release had no public prior"):
        privsyn.rerun(first.released, prior=tmp_path / "last_year.parquet")
    assert privsyn.rerun(folder, prior=tmp_path / "last_year.parquet").agrees
    better = privsyn.improve(second.run, 0.5)  # takes the prior from where the release read it
    assert better.spec.prior.sha256 == spec.prior.sha256 and better.certificate.improves == [second.run]
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    again = with_public(data, moved, table)  # the content counts, not its place
    assert release(again).drawn == () and again.prior.table != spec.prior.table
    pq.write_table(table.slice(1), tmp_path / "last_year.parquet")
    with pytest.raises(RequestError, match="names no file with its `sha256`"):
        release(spec)


def test_one_row_of_a_prior_is_one(save: Any, tmp_path: Path) -> None:
    warnings = check(with_public(save(people(50)), tmp_path, people(1)), None).warnings
    assert any(warning.startswith("prior: 1 row that the spec states") for warning in warnings)


def test_a_release_whose_table_was_replaced_is_no_prior(save: Any, tmp_path: Path) -> None:
    data = save(people(300))
    folder = tmp_path / "received"
    shutil.copytree(release(few(data)).released, folder)
    folder.chmod(0o700)
    (folder / "synthetic.parquet").unlink()
    pq.write_table(people(40), folder / "synthetic.parquet")
    for place, problem in (
        (folder, "missing or was changed after its publication"),
        (folder / "synthetic.parquet", "is not the folder of a release"),
    ):
        with pytest.raises(RequestError, match=problem):
            with_public_inputs(few(data, prior={"release": str(place), "statement": STATEMENT}), tmp_path)


def test_the_private_table_of_another_data_set_is_no_prior(save: Any, tmp_path: Path) -> None:
    data = save(people(300))
    (tmp_path / "copy.parquet").write_bytes(Path(data).read_bytes())
    release(few(data))
    paid = spent()
    spec = with_public(save(people(90), "other.parquet"), tmp_path, None, table="copy.parquet")
    with pytest.raises(RequestError, match="cannot be told from a private table"):
        release(spec.model_copy(update={"dataset": "others"}))
    assert spent() == paid


@pytest.mark.parametrize(
    ("prior", "words"),
    [
        ({"table": "absent.csv"}, "does not exist"),
        ({"table": "few.csv"}, "has no column"),
        ({"table": "empty.csv"}, "has no rows"),
        ({"release": "."}, r"has no synthetic.parquet"),
        ({"release": "parts"}, r"has its rows in parts, but a prior is one file. Join the parts"),
        ({"table": "few.csv", "sha256": "0" * 64}, "has another content"),
    ],
)
def test_a_file_that_is_no_prior_is_refused_in_a_sentence(
    save: Any, tmp_path: Path, prior: dict[str, str], words: str
) -> None:
    (tmp_path / "few.csv").write_text("age\n30\n")
    (tmp_path / "parts" / "synthetic").mkdir(parents=True)
    (tmp_path / "empty.csv").write_text(",".join(few("x").released_columns) + "\n")
    with pytest.raises(RequestError, match=words) as caught:
        release(with_public_inputs(few(save(people(50)), prior={**prior, "statement": STATEMENT}), tmp_path))
    assert str(caught.value.field).startswith("prior")


def test_a_run_takes_no_file_whose_content_was_not_stated(save: Any, tmp_path: Path) -> None:
    pq.write_table(people(50), tmp_path / "last_year.parquet")
    spec = few(save(people(50)), prior={"table": str(tmp_path / "last_year.parquet"), "statement": STATEMENT})
    with pytest.raises(RequestError, match="names a file without its `sha256`, which a run requires"):
        release(spec)


def test_who_names_a_file_of_another_content_does_not_learn_whether_it_is_there(save: Any, tmp_path: Path) -> None:
    (tmp_path / "there.csv").write_text("age\n30\n")
    said = set()
    for place in ("there.csv", "absent.csv", "/proc/self/mem", "."):
        prior = {"table": str(tmp_path / place), "statement": STATEMENT, "sha256": "0" * 64}
        with pytest.raises(RequestError) as caught:
            release(few(save(people(50)), prior=prior))
        said.add(str(caught.value))
    assert len(said) == 1


def test_the_policy_may_name_priors_alone_and_what_it_does_not_name_is_not_looked_for(
    save: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = save(people(300))
    spec = with_public(data, tmp_path, people(200))
    rules = {"paths": [data], "budget": {"epsilon": 50, "delta": 1e-6}, "epsilon": 50, "delta": 1e-6}
    policy = {"datasets": {"people": {**rules, "priors": ["last_year.parquet"]}}}
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(policy))
    monkeypatch.setenv("PRIVSYN_POLICY", str(tmp_path / "policy.yaml"))
    with pytest.raises(RequestError, match=r"is not among the policy's datasets.people.public or datasets.people.pri"):
        release(few(data, prior={"table": "/no/such/file", "sha256": spec.prior.sha256, "statement": STATEMENT}))
    assert release(spec).rows


def test_what_a_release_or_the_private_folder_does_not_give_away_is_no_prior(save: Any, tmp_path: Path) -> None:
    data = save(people(300))
    run_with_test_noise = release_in_process(few(data), Settings(), noise=NoNoise())
    with pytest.raises(RequestError, match="is not the folder of a release"):
        with_public_inputs(few(data, prior={"release": run_with_test_noise.released, "statement": STATEMENT}), tmp_path)
    kept = Path(run_with_test_noise.released) / "synthetic.parquet"
    with pytest.raises(RequestError, match="is in the private folder, where nothing is public"):
        release(with_public_inputs(few(data, prior={"table": str(kept), "statement": STATEMENT}), tmp_path))


def test_an_earlier_release_is_a_prior(save: Any, tmp_path: Path) -> None:
    data = save(people(300))
    first = release(few(data))
    spec = with_public_inputs(few(data, prior={"release": str(first.released), "statement": STATEMENT}), tmp_path)
    second = release(spec)
    assert second.run != first.run
    answer = privsyn.open_release(second.released).estimate(lambda rows: rows["age"].median(), columns=["age"])
    assert answer.source.eq("not known").all() and PRIOR_WARNING in answer.attrs["words"]
    told = "barely changes what these files can say beyond what the public prior says, whatever is done with them"
    assert told in (Path(second.released) / "README.md").read_text()
    assert privsyn.rerun(second.released, prior=first.released).agrees
    with pytest.raises(RequestError, match=r"is not the public prior of the release.* whose synthetic.parquet"):
        privsyn.rerun(second.released, prior=second.released)


def test_what_never_occurs_in_the_prior_cannot_occur_where_that_is_declared(save: Any, tmp_path: Path) -> None:
    table = people(400)
    both = np.asarray(table["happy"]) & (np.asarray(table["region"]) == "north")
    data = save(table)
    public = table.filter(~both)
    pq.write_table(public, tmp_path / "last_year.parquet")
    columns = {name: COLUMNS[name] if name in ("region", "happy") else {"kind": "drop"} for name in COLUMNS}
    prior = {"table": "last_year.parquet", "statement": STATEMENT}
    found = []
    for zeros in (True, False):
        asked = make_spec(columns, data=data, prior={**prior, "zeros": zeros})
        made = privsyn.open_release(release(with_public_inputs(asked, tmp_path)).released).table
        found.append(int((np.asarray(made["happy"]) & (np.asarray(made["region"]) == "north")).sum()))
    assert found[0] == 0 < found[1]


def test_the_example_of_the_docs_is_released(save: Any, tmp_path: Path) -> None:
    example = read_example("docs/priors.md")
    pq.write_table(people(200), tmp_path / example["prior"]["table"])
    spec = with_public_inputs(few(save(people(300)), **example), tmp_path)
    assert check(spec).warnings[0].startswith("prior: 200 rows that the spec states to be public")
    assert example["prior"]["statement"] in (Path(release(spec).released) / "README.md").read_text()


def test_a_received_folder_does_not_choose_which_file_is_read(save: Any, tmp_path: Path) -> None:
    folder = Path(release(with_public(save(people(300)), tmp_path, people(200))).released)
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["spec"]["prior"]["table"] = str(tmp_path / "last_year.parquet")
    path.write_text(json.dumps(manifest))
    assert privsyn.open_release(folder).spec.prior.place == ""


LOOKS = ("one_way_marginals", "measure_marginals", "measure_groups", "measure_in_groups")


def spec_of(data: str, folder: Path, public: pa.Table, zeros: bool = False, **changes: Any) -> ReleaseSpec:
    """By groups of region; ``changes``: options of the mechanism and fields of the spec."""
    pq.write_table(public, folder / "last_year.parquet")
    fields = {n: changes.pop(n) for n in ("rules", "unit", "columns") if n in changes}
    spec = make_spec(
        fields.pop("columns", None),
        data=data,
        privacy={"epsilon": 4.0, "delta": 1e-9},
        budget={"epsilon": 50.0, "delta": 1e-8},
        mechanism={"name": "prior", "group": ["region"], "synthesis": {"seed": 3}, **changes},
        prior={"table": "last_year.parquet", "statement": STATEMENT, "zeros": zeros},
        **fields,
    )
    return with_public_inputs(spec, folder)


def made_from(spec: ReleaseSpec) -> tuple[ReleaseSummary, pa.Table]:
    summary = release_in_process(spec, Settings())
    return summary, pq.read_table(Path(summary.released) / "synthetic.parquet")


def test_rows_follow_the_private_groups_and_stay_in_the_public_support(save: Any, tmp_path: Path) -> None:
    """The public table has other shares of regions and of happiness, and no old person who is unhappy."""
    public = people(3_000, seed=1).drop_columns(["caseid"])
    old_unhappy = pc.and_(pc.greater(public["age"], 66), pc.equal(public["happy"], False)).fill_null(False)
    thinned = pa.array(np.random.default_rng(0).random(3_000) < 0.3)
    public = public.filter(pc.invert(pc.or_(old_unhappy, pc.and_(pc.equal(public["region"], "north"), thinned))))
    private = people(3_000)
    summary, rows = made_from(spec_of(save(private), tmp_path, public))
    told = pc.sum(pc.equal(rows["region"], "north")).as_py() / rows.num_rows
    true = pc.sum(pc.equal(private["region"], "north")).as_py() / 3_000
    assert abs(told - true) < 0.03 < abs(pc.sum(pc.equal(public["region"], "north")).as_py() / public.num_rows - true)
    odd = pc.and_(pc.greater(rows["age"], 75), pc.equal(rows["happy"], False))  # inside a bin values are drawn anew
    assert pc.sum(odd.fill_null(False)).as_py() in (0, None)
    assert summary.rows == rows.num_rows


@pytest.mark.parametrize("zeros", keep_first([True, False]))
def test_a_group_that_the_public_table_lacks_has_rows_if_its_count_stands_out(
    save: Any, tmp_path: Path, zeros: bool
) -> None:
    public = people(1_000, seed=1).drop_columns(["caseid"])
    public = public.filter(pc.not_equal(public["region"], "north"))
    _, rows = made_from(spec_of(save(people(2_000)), tmp_path, public, zeros))
    north = pc.sum(pc.equal(rows["region"], "north")).as_py()
    assert 900 < north < 1_300  # a code that no public row has is left alone by `zeros`
    assert "east" not in rows["region"].to_pylist()  # neither table has it


def test_two_levels_and_several_records_a_person(save: Any, tmp_path: Path) -> None:
    options = {"group": ["region", "happy"], "large": ["region"], "shrink": False}
    public = people(1_500, seed=1).drop_columns(["caseid"])
    spec = spec_of(save(people(2_000)), tmp_path, public, unit={"records_per_person": 3}, **options)
    summary, _ = made_from(spec)
    certificate = json.loads((Path(summary.released) / "certificate.json").read_text(encoding="utf-8"))
    assert {g["sensitivity"] for stage in certificate["stages"] for g in stage["groups"]} == {3}
    receipts = pq.read_table(Path(summary.released) / "marginals/measured_receipts.parquet")
    assert all("region" in a for a in receipts["attributes"].to_pylist())


def test_the_example_of_the_docs_is_taken(save: Any, tmp_path: Path) -> None:
    example = read_example("docs/mechanisms.md")
    pq.write_table(people(200), tmp_path / example["prior"]["table"])
    spec = with_public_inputs(make_spec(data=save(people(300)), **example), tmp_path)
    found = check(spec)
    assert found.warnings[0].startswith("prior: 200 rows that the spec states to be public")
    assert [step.name for step in plan_release(spec).steps if step.kind is StepKind.RELEASE] == list(LOOKS)


def test_no_row_breaks_a_rule(save: Any, tmp_path: Path) -> None:
    rules = [{"never": "region == 'north' and not happy"}, {"never": "age < 30 and income > 50000"}]
    public = people(1_500, seed=1).drop_columns(["caseid"])
    _, rows = made_from(spec_of(save(people(2_000)), tmp_path, public, rules=rules))
    t = rows.to_pandas()
    assert len(t) > 1_800 and (t.region == "north").any()
    assert not ((t.region == "north") & ~t.happy.astype(bool)).any() and not ((t.age < 30) & (t.income > 50_000)).any()
