"""Settings: defaults, overrides, and a ledger that does not move with the output folder."""

import pytest

from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings
from privsyn.cli.common import COMMAND_LINE


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in ("OUT", "RELEASED", "PRIVATE", "LEDGER", "THREADS"):
        monkeypatch.delenv(f"PRIVSYN_{name}", raising=False)


def test_the_environment_and_arguments_override(monkeypatch, tmp_path):
    monkeypatch.setenv("PRIVSYN_OUT", str(tmp_path / "out"))
    monkeypatch.setenv("PRIVSYN_PRIVATE", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PRIVSYN_THREADS", "3")
    settings = Settings(ledger="postgresql://server/ledger")
    assert settings.released_root == tmp_path / "out" / "released"
    assert settings.private_root == tmp_path / "elsewhere"
    assert (settings.threads, settings.ledger) == (3, "postgresql://server/ledger")


def test_the_ledger_stays_when_the_output_folder_moves(tmp_path):
    assert Settings(out=tmp_path / "a").ledger == Settings(out=tmp_path / "b").ledger


def test_an_empty_variable_is_no_setting(monkeypatch):
    monkeypatch.setenv("PRIVSYN_LEDGER", "")
    monkeypatch.setenv("PRIVSYN_THREADS", "")
    assert Settings().ledger.endswith("ledger.sqlite")


@pytest.mark.parametrize("value", ["abc", "-1", "1.5", "1025"])
def test_wrong_threads_are_refused_by_the_variables_name(monkeypatch, value):
    monkeypatch.setenv("PRIVSYN_THREADS", value)
    with pytest.raises(RequestError, match=r"PRIVSYN_THREADS: .* Correct it or leave it out") as refusal:
        Settings()
    assert refusal.value.paragraph(COMMAND_LINE).startswith("PRIVSYN_THREADS: ")
    assert value in str(refusal.value)
    assert refusal.value.exit_code == 2
