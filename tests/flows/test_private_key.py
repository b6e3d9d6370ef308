"""A private folder whose key is lost, or whose records are of another shape: refused, and nothing is charged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import BaseModel

from privsyn.base.errors import PrivsynError
from privsyn.base.settings import Settings
from privsyn.data_contracts.certificate import Certificate
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine.step_tables import StepRefs
from privsyn.ledgers.ledger import Ledger
from privsyn.storage.records import (
    CounterRecord,
    GenerationRecord,
    LedgerRecord,
    Records,
    RequestRecord,
    RunRecord,
    VersionsRecord,
)
from privsyn.storage.store import CHECK, NAME
from tests.support.kept import Kept
from tests.support.opened import watched
from tests.support.releases import few, run
from tests.support.specs import people


@pytest.fixture
def spec(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> ReleaseSpec:
    return few(kept.begin_with(monkeypatch, people(200)), budget={"epsilon": 5.0, "delta": 1e-9})


def restore_without_dots(private: Path) -> None:
    """As ``cp private/* elsewhere/`` copies it."""
    for path in private.glob(".*"):
        path.unlink()


def lose_both(private: Path) -> None:
    restore_without_dots(private)
    (private / CHECK).unlink()


def flip_a_bit(private: Path) -> None:
    key = (private / NAME).read_bytes()
    (private / NAME).write_bytes(bytes([key[0] ^ 1]) + key[1:])


@pytest.mark.parametrize(
    "damage, words",
    [(restore_without_dots, "is missing"), (lose_both, "is missing"), (flip_a_bit, "is not the key")],
)
def test_a_lost_or_changed_key_is_refused_and_charges_nothing(
    kept: Kept, spec: ReleaseSpec, damage: Callable[[Path], None], words: str
) -> None:
    kept.once(lambda: run(spec))
    private, before = Settings().private_root, Ledger(Settings().ledger).export()
    shutil.copytree(private, private.with_name("backup"))
    damage(private)
    with watched(Path(spec.data)) as events:
        for fresh in (False, True):
            with pytest.raises(
                PrivsynError, match=rf"the key .*\.key.*{words}.*[Rr]estore.*dot files.*PRIVSYN_OUT"
            ) as e:
                run(spec, fresh=fresh)
            assert e.value.exit_code == 1
        assert events() == 0, "the private table was opened"
    assert Ledger(Settings().ledger).export() == before
    shutil.rmtree(private)
    private.with_name("backup").rename(private)
    assert run(spec).drawn == ()


def test_a_folder_of_before_gets_its_check_from_the_key_that_is_there(kept: Kept, spec: ReleaseSpec) -> None:
    kept.once(lambda: run(spec))
    private = Settings().private_root
    (private / CHECK).unlink()
    assert run(spec).drawn == ()
    flip_a_bit(private)
    with pytest.raises(PrivsynError, match="is not the key"):
        run(spec)


def test_a_folder_without_tables_and_records_gets_a_new_key(spec: ReleaseSpec) -> None:
    private = Settings().private_root
    private.mkdir(parents=True)
    (private / CHECK).write_text("0" * 64)
    assert run(spec).drawn
    assert (private / CHECK).stat().st_mode & 0o777 == 0o600
    assert (private / NAME).read_bytes().hex() not in (private / CHECK).read_text()


KINDS: dict[str, type[BaseModel]] = {
    "certificate-": Certificate,
    "generation-": GenerationRecord,
    "generations-": CounterRecord,
    "ledger": LedgerRecord,
    "request-": RequestRecord,
    "run-": RunRecord,
    "step-": StepRefs,
    "versions-": VersionsRecord,
}


def flip(text: str) -> str:
    """One letter of the first name changed."""
    content = json.loads(text)
    first = next(iter(content))
    return json.dumps({first[:-1] + chr(ord(first[-1]) ^ 1): content.pop(first), **content})


def numbers(text: str) -> str:
    """Every value another kind of thing."""
    return json.dumps({key: [{}] for key in json.loads(text)})


def test_records_of_another_shape_are_refused_in_words(spec: ReleaseSpec) -> None:
    run(spec)
    records = Records(Settings().private_root, "people")
    folder, before = Settings().private_root / "records" / "people", Ledger(Settings().ledger).export()
    paths = sorted(folder.glob("*.json"))
    kinds = {path: next(kind for kind in KINDS if path.name.startswith(kind)) for path in paths}
    assert set(kinds.values()) == set(KINDS)
    for path, kind in kinds.items():
        text, said = path.read_text(), f"the private record {path} cannot be read. Restore it from a backup."
        assert records.load_as(path.stem, KINDS[kind]) is not None
        for damage in (lambda _: "{}", lambda _: "[1]", lambda _: "null", lambda _: "7", flip, numbers):
            path.write_text(damage(text))
            with pytest.raises(PrivsynError) as error:
                records.load_as(path.stem, KINDS[kind])
            assert str(error.value) == said
        if kind in ("generation-", "generations-", "ledger", "request-", "run-"):  # and so does a release
            with pytest.raises(PrivsynError) as error:
                run(spec)
            assert str(error.value) == said
        path.write_text(text)
    assert Ledger(Settings().ledger).export() == before
    assert run(spec).drawn == ()
    # A step without one of its tables is a damaged record.
    path = next(p for p in folder.glob("step-*.json") if '"one_way_marginals"' in p.read_text())
    content = json.loads(path.read_text())
    content["tables"]["nois{"] = content["tables"].pop("noisy")
    path.write_text(json.dumps(content))
    with pytest.raises(PrivsynError, match=r"the private record .*step-.* cannot be read"):
        run(spec)
    assert Ledger(Settings().ledger).export() == before


def test_a_name_of_the_ledgers_note_cannot_be_lost_by_a_flipped_letter(places: Path) -> None:
    """Without ``entries`` an older copy of the ledger would be taken for the ledger."""
    records = Records(places / "private", "people")
    records.save("ledger", {"created": "now", "entries": 3, "head": "a"})
    assert records.load_as("ledger", LedgerRecord) == LedgerRecord(created="now", entries=3, head="a")
    records.save("ledger", {"created": "now", "entrhes": 3, "head": "a"})
    with pytest.raises(PrivsynError, match="cannot be read"):
        records.load_as("ledger", LedgerRecord)
