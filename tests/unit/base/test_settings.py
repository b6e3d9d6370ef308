"""Settings: defaults, overrides, a ledger that stays, and one address of a database without a password in a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from privsyn.base.errors import RequestError
from privsyn.base.settings import Settings, check_ledger_url, check_server_url
from privsyn.cli.common import COMMAND_LINE


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


URL = "postgresql://steward:p%40ss@db.example/privsyn"


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OUT", "RELEASED", "PRIVATE", "LEDGER", "THREADS", "DATABASE_URL", "DATABASE_PASSWORD_FILE"):
        monkeypatch.delenv(f"PRIVSYN_{name}", raising=False)


def test_one_variable_moves_the_ledger_and_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().server_database is None
    monkeypatch.setenv("PRIVSYN_DATABASE_URL", URL)
    assert Settings().ledger == URL
    assert Settings().server_database == URL.replace("postgresql", "postgresql+asyncpg")


def test_a_ledger_of_its_own_goes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVSYN_DATABASE_URL", URL)
    monkeypatch.setenv("PRIVSYN_LEDGER", "ledger.sqlite")
    assert Settings().ledger == "ledger.sqlite"
    assert Settings().server_database is not None


@pytest.mark.parametrize("scheme", ["postgres", "postgresql+psycopg", "postgresql+asyncpg"])
def test_the_driver_that_somebody_wrote_does_not_matter(scheme: str) -> None:
    written = URL.replace("postgresql", scheme)
    if scheme == "postgres":  # SQLAlchemy knows no such name
        with pytest.raises(RequestError, match=r"PRIVSYN_DATABASE_URL"):
            check_ledger_url(written)
        return
    assert check_ledger_url(written) == URL
    assert check_server_url(written) == URL.replace("postgresql", "postgresql+asyncpg")


def test_options_are_put_into_each_driver_s_words() -> None:
    written = "postgresql://u@/db?host=/run/pg&sslmode=verify-full"
    assert check_ledger_url(written) == "postgresql://u@/db?host=%2Frun%2Fpg&sslmode=verify-full"
    assert check_server_url(written) == "postgresql+asyncpg://u@/db?host=%2Frun%2Fpg&ssl=verify-full"


def test_the_password_may_stand_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "password"
    secret.write_text("s:ecr/et\n")
    monkeypatch.setenv("PRIVSYN_DATABASE_URL", "postgresql://u@h/db")
    monkeypatch.setenv("PRIVSYN_DATABASE_PASSWORD_FILE", str(secret))
    assert Settings().ledger == "postgresql://u:s%3Aecr%2Fet@h/db"
    assert "ecr" not in repr(Settings())
    secret.write_text("\n")
    with pytest.raises(RequestError, match=r"PRIVSYN_DATABASE_PASSWORD_FILE: .* is empty"):
        Settings()
    secret.unlink()
    with pytest.raises(RequestError, match=r"PRIVSYN_DATABASE_PASSWORD_FILE: .* cannot be read"):
        Settings()


@pytest.mark.parametrize(
    "wrong",
    [
        "hunter2",
        "mysql://u:hunter2@h/db",
        "sqlite:///hunter2",
        "postgresql://u:hunter2@h",
        "postgresql://u:hunter2@h:x/db",
    ],
)
def test_what_is_wrong_is_named_and_not_repeated(wrong: str) -> None:
    with pytest.raises(RequestError, match=r"^PRIVSYN_DATABASE_URL: ") as refusal:
        check_ledger_url(wrong)
    assert "hunter2" not in str(refusal.value)
    assert refusal.value.exit_code == 2


def test_an_option_that_the_server_cannot_take_is_refused_for_it_only() -> None:
    written = URL + "?options=-csearch_path%3Dx"
    assert "options" in check_ledger_url(written)
    with pytest.raises(RequestError, match=r"PRIVSYN_DATABASE_URL: .* cannot take the option 'options'"):
        check_server_url(written)
