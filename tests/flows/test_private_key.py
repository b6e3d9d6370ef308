"""A private folder whose key is lost or changed: refused before the table is opened, and nothing is charged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from privsyn.base.errors import PrivsynError
from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.ledgers.ledger import Ledger
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
