"""Links in the released root lead nowhere: nothing is written, read or taken for whole behind one."""

from __future__ import annotations

from pathlib import Path

import pytest

from privsyn.base.settings import Settings
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.ledgers.ledger import Ledger
from privsyn.publish.folder import ReleaseSummary, is_whole
from tests.support.commands import privsyn, use_no_server
from tests.support.examples import keep_first
from tests.support.kept import Kept
from tests.support.releases import few, release_in_process
from tests.support.specs import people


@pytest.fixture
def spec(kept: Kept, places: Path, monkeypatch: pytest.MonkeyPatch) -> ReleaseSpec:
    return few(kept.begin_with(monkeypatch, people(100)))


@pytest.fixture
def done(kept: Kept, spec: ReleaseSpec) -> ReleaseSummary:
    """A release of ``spec``, the same for every test that asks for it."""
    return kept.once(lambda: release_in_process(spec, Settings()))  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", keep_first(["link to a folder", "dangling link", "file"]))
def test_a_link_in_the_place_of_a_run_is_refused_and_nothing_is_written(
    spec: ReleaseSpec, done: ReleaseSummary, places: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    use_no_server(monkeypatch)
    folder, outside, before = Path(done.released), places / "outside", Ledger(Settings().ledger).export()
    folder.rename(places / "old")
    if kind == "file":
        folder.write_text("mine")
    else:
        folder.symlink_to(outside)
    if kind == "link to a folder":
        outside.mkdir()
    (places / "spec.yaml").write_text(spec.model_dump_json(), encoding="utf-8")
    result = privsyn("release", str(places / "spec.yaml"))
    assert result.exit_code == 2, result.output
    assert "privsyn: PRIVSYN_RELEASED: " in result.stderr
    assert "is a link or a file" in result.stderr
    assert Ledger(Settings().ledger).export() == before
    assert not outside.exists() or not list(outside.iterdir())
    folder.unlink()
    assert release_in_process(spec, Settings()).drawn == ()


def test_links_in_a_released_folder_are_replaced_by_what_they_lead_to(
    spec: ReleaseSpec, done: ReleaseSummary, places: Path
) -> None:
    table = Path(done.released) / "synthetic.parquet"
    table.rename(places / "elsewhere.parquet")
    table.symlink_to(places / "elsewhere.parquet")
    assert not is_whole(Path(done.released))
    content = table.read_bytes()
    assert release_in_process(spec, Settings()).drawn == ()
    assert not table.is_symlink()
    assert table.read_bytes() == content == (places / "elsewhere.parquet").read_bytes()
    # A linked folder in a released folder is replaced.
    marginals, moved = Path(done.released) / "marginals", places / "elsewhere"
    marginals.rename(moved)
    marginals.symlink_to(moved)
    before = {p.name for p in moved.iterdir()}
    assert release_in_process(spec, Settings()).drawn == ()
    assert marginals.is_dir()
    assert not marginals.is_symlink()
    assert {p.name for p in moved.iterdir()} == before
