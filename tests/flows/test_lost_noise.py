"""Noisy tables that were paid for and are lost: restored from the released folder for nothing, or refused with 4.

It does not see tables that were lost with the ledger's charge, nor a released folder that lies in an object store only.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from privsyn.api.release import improve
from privsyn.base.errors import LostNoiseError
from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.step import ReleaseStep
from privsyn.ledgers.ledger import Ledger
from privsyn.pipelines.one_shot import STEPS
from privsyn.publish.folder import ReleaseSummary
from tests.support.commands import privsyn
from tests.support.kept import Kept
from tests.support.releases import few, read_files, release_in_process
from tests.support.specs import people

LOOKS = tuple(step.name for step in STEPS if isinstance(step, ReleaseStep))


@pytest.fixture
def spec(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> ReleaseSpec:
    return few(kept.begin_with(monkeypatch, people(200)))


@pytest.fixture
def made(kept: Kept, spec: ReleaseSpec) -> ReleaseSummary:
    """A release of ``spec``, the same for every test that asks for it."""
    return kept.once(lambda: release_in_process(spec, Settings()))  # type: ignore[no-any-return]


def noisy_tables() -> list[Path]:
    found = sorted((Settings().private_root / "store" / "people").glob("*-noisy.parquet"))
    assert len(found) == len(LOOKS)
    return found


def entries() -> int:
    return len(Ledger(Settings().ledger).entries())


def delete(path: Path) -> None:
    path.unlink()


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9] + b"otherwise")


def forge(path: Path) -> None:
    """Another table of the same shape, which nobody recorded."""
    table = pq.read_table(path)
    pq.write_table(table.slice(0, 0), path)


def forget(path: Path) -> None:
    """The table, and the record by which it is known."""
    path.unlink()
    for record in (Settings().private_root / "records" / "people").glob("step-*.json"):
        if path.name in record.read_text(encoding="utf-8"):
            record.unlink()


@pytest.mark.parametrize("lose", [delete, damage, forge, forget])
def test_lost_noise_is_restored_from_the_released_folder_for_nothing(
    lose: Callable[[Path], None], spec: ReleaseSpec, made: ReleaseSummary, caplog: pytest.LogCaptureFixture
) -> None:
    before, paid = read_files(Path(made.released)), entries()
    for table in noisy_tables():
        lose(table)
    again = release_in_process(spec, Settings())
    assert (again.run, again.drawn, entries()) == (made.run, (), paid)
    assert read_files(Path(again.released)) == before
    noisy_tables()
    assert [message.split()[6] for message in caplog.messages if "was lost and is restored" in message] == [*LOOKS]
    assert release_in_process(spec, Settings()).drawn == ()
    assert privsyn("ledger", "verify").exit_code == 0


def test_other_rows_are_made_of_the_restored_noise(spec: ReleaseSpec, made: ReleaseSummary) -> None:
    """A request that shares the noise, under a run of its own, finds it in the folder of the run that drew it."""
    noisy_tables()[0].unlink()
    again = release_in_process(spec.with_rows(seed=7), Settings())
    assert again.run != made.run and again.drawn == ()


def test_an_improvement_goes_on_once_its_release_is_restored(spec: ReleaseSpec, made: ReleaseSummary) -> None:
    noisy_tables()[0].unlink()
    release_in_process(spec, Settings())
    assert improve(made.run, 0.5).run != made.run


def remove(folder: Path) -> None:
    shutil.rmtree(folder)


def change(folder: Path) -> None:
    for file in (folder / "marginals").glob("*.parquet"):
        damage(file)


def change_with_the_manifest(folder: Path) -> None:
    """What a folder says of itself is not enough where the record of the noise is here."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    for file in (folder / "marginals").glob("*.parquet"):
        forge(file)
        content = file.read_bytes()
        manifest["files"][f"marginals/{file.name}"] = {
            "sha256": hashlib.sha256(content).hexdigest(),
            "bytes": len(content),
        }
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


@pytest.mark.parametrize("spoil", [remove, change, change_with_the_manifest])
def test_noise_that_is_nowhere_is_refused_with_a_code_of_its_own(
    spoil: Callable[[Path], None], spec: ReleaseSpec, made: ReleaseSummary, kept: Kept
) -> None:
    (kept.home / "people.yaml").write_text(spec.model_dump_json(), encoding="utf-8")
    paid = entries()
    spoil(Path(made.released))
    noisy_tables()[0].unlink()
    refused = privsyn("release", kept.home / "people.yaml")
    assert refused.exit_code == 4, refused.output
    assert "was paid for but is missing or changed on disk, and no released folder here has it" in refused.stderr
    assert "run with --fresh" in refused.stderr
    assert entries() == paid
    with pytest.raises(LostNoiseError):
        release_in_process(spec, Settings())
    anew = release_in_process(spec, Settings(), fresh=True)
    assert (anew.drawn, entries()) == (LOOKS, 2 * paid)


def test_verify_says_which_store_lacks_what_was_paid_for(spec: ReleaseSpec, made: ReleaseSummary) -> None:
    assert "lacks" not in privsyn("ledger", "verify").stdout
    noisy_tables()[0].unlink()
    private = read_files(Settings().private_root)
    answer = privsyn("ledger", "verify", "--json")
    assert answer.exit_code == 0  # the released folder has them
    (note,) = [n for n in json.loads(answer.stdout)["notes"] if "lacks" in n]
    assert note.startswith(f"{made.run}: {Settings().private_root} lacks what was paid for")
    assert read_files(Settings().private_root) == private
    release_in_process(spec, Settings())
    assert "lacks" not in privsyn("ledger", "verify").stdout


def test_a_copy_at_another_path_has_its_noise(
    spec: ReleaseSpec, made: ReleaseSummary, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also without the released folder; the records name the old path."""
    paid = entries()
    (kept.home / "out").rename(kept.home / "restored")
    shutil.rmtree(kept.home / "restored" / "released")
    monkeypatch.setenv("PRIVSYN_OUT", str(kept.home / "restored"))
    assert "lacks" not in privsyn("ledger", "verify").stdout
    again = release_in_process(spec, Settings())
    assert (again.run, again.drawn, entries()) == (made.run, (), paid)


def test_of_a_released_period_the_ledger_s_note_promises_no_release_again(spec: ReleaseSpec) -> None:
    """It would not be made: the period is released."""
    release_in_process(spec, Settings(), period="2026-01")
    noisy_tables()[0].unlink()
    told = privsyn("ledger", "verify").output
    assert "lacks what was paid for" in told and "only a backup brings them back" in told
    assert "the same release again" not in told
