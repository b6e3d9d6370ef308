"""Bug class 12: no log, message, Prefect row, result file or released file shows a private value, whatever fails.

It does not see canaries of numbers that were rounded or binned, nor commands on linked rows, linked tables, itemsets,
databases and Dask: its releases are of one CSV file.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privsyn.base.settings import Settings
from privsyn.data_contracts import tables
from privsyn.data_contracts.artifacts import Zone
from privsyn.data_contracts.domain import Domain
from privsyn.data_contracts.release_spec import ReleaseSpec
from privsyn.engine import execute
from privsyn.storage.released_root import ZoneError
from privsyn.storage.store import Store
from privsyn.tasks.steps import encode
from tests.support.commands import privsyn
from tests.support.evaluations import slight_settings
from tests.support.releases import QUICK, few, run
from tests.support.specs import make_spec, people

Save = Callable[..., str]

CANARIES = {
    "caseid": "CANARY-DROPPED-4711",
    "region": "CANARY-UNLISTED-4712",
    "age": "CANARY-UNPARSEABLE-4713",
    "income": "987654321.125",
    "seen": "CANARY-MOMENT-4714",
    "happy": "CANARY-TRUTH-4715",
}


def canary_csv(path: Path, rows: int = 200) -> str:
    table = people(rows).to_pandas().astype(str)
    for i, (column, canary) in enumerate(CANARIES.items()):
        table.loc[i, column] = canary
    table.to_csv(path, index=False)
    return str(path)


def fail_with_canaries(*arguments: Any, **named: Any) -> Any:
    raise ValueError(" ".join(CANARIES.values()))


def traces(folder: Path, *, texts: tuple[str, ...] = ()) -> list[str]:
    """Files under the folder, and texts, in which a canary stands (Parquet is read cell by cell)."""
    found = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        content = path.read_bytes()
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            content += "\n".join(str(c.to_pylist()) for c in table.columns).encode() + str(table.schema).encode()
        found += [f"{path.name}: {c}" for c in CANARIES.values() if c.encode() in content]
    return found + [f"text: {c}" for text in texts for c in CANARIES.values() if c in text]


class Kept(logging.Handler):
    """Keeps every record as text, with what it was given to format, and the error that it carries."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(f"{record.name} {record.msg} {record.args} {self.format(record)}")


@contextmanager
def everything_logged() -> Iterator[list[str]]:
    """What any logger of this process says, at DEBUG; of numba's compiler, which sees no rows, at its own level."""
    kept, compiler = Kept(), logging.getLogger("numba")
    compiler.setLevel(compiler.level or logging.WARNING)  # also where it is not loaded yet
    known = [lg for lg in logging.Logger.manager.loggerDict.values() if isinstance(lg, logging.Logger)]
    loggers = [logging.getLogger(), *(lg for lg in known if not lg.name.startswith("numba"))]
    screens = {h: lg for lg in loggers for h in lg.handlers if isinstance(h, logging.StreamHandler)}
    before = [*((lg, lg.level) for lg in loggers), *((handler, handler.level) for handler in screens)]
    heard = [lg for lg in loggers if lg is logging.getLogger() or not lg.propagate]
    for handler, logger in screens.items():  # a screen shows what it would have: `kept` has all that is said
        handler.setLevel(max(handler.level, logger.getEffectiveLevel()))
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
    for logger in heard:
        logger.addHandler(kept)
    try:
        yield kept.texts
    finally:
        for logger in heard:
            logger.removeHandler(kept)
        for one, level in before:
            one.setLevel(level)


# without Prefect: quick enough for mutants

PLACES = (
    "privsyn.tasks.steps.encode.encode",
    "privsyn.engine.step.ReleaseStep.read_rows",
    "privsyn.storage.store.Store.write_table",
)


def shown_by_releases(
    spec: ReleaseSpec, monkeypatch: pytest.MonkeyPatch, failing: tuple[str, ...] = PLACES
) -> list[str]:
    """Canaries in logs, messages and released files, of a release and of releases that fail in each of these places."""
    messages = []
    with everything_logged() as logged:
        for place in failing:
            with monkeypatch.context() as patched:
                patched.setattr(place, fail_with_canaries)
                with pytest.raises(Exception, match="failed") as error:
                    run(spec.model_copy(update={"dataset": place.split(".")[-1]}), new_dataset="one a failure")
            messages.append(str(error.value))
        run(spec, new_dataset="the one that ends well")
    assert len(logged) > 3
    assert all("ValueError" in message for message in messages), messages
    return traces(Settings().released_root, texts=(*messages, *logged))


def test_12_a_release_shows_no_private_value(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown_by_releases(few(canary_csv(places / "people.csv")), monkeypatch) == []


def logging_encode(rows: Any, *rest: Any) -> Any:
    first = next(iter(rows())).slice(0, 9).to_pylist()
    logging.getLogger("privsyn.tasks.steps.encode").debug("rows start with %s", first)
    return ENCODE(rows, *rest)


ENCODE, PLACE = encode.encode, execute.locate_error
MUTANTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "rows in a log": ("privsyn.tasks.steps.encode.encode", logging_encode),
    "the text of an error": ("privsyn.engine.execute.locate_error", lambda error: f"{PLACE(error)}: {error}"),
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=list(MUTANTS))
def test_12_mutant_rows_in_a_log_or_a_message(
    places: Path, monkeypatch: pytest.MonkeyPatch, mutant: tuple[str, Callable[..., Any]]
) -> None:
    """Planted mutants: a line for debugging, and a message that is meant to be helpful."""
    monkeypatch.setattr(*mutant)
    assert shown_by_releases(few(canary_csv(places / "people.csv")), monkeypatch, PLACES[1:2]) != []


def test_12_the_search_finds_planted_canaries(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(f"row {CANARIES['age']} was bad", encoding="utf-8")
    pq.write_table(pa.table({"x": [CANARIES["region"]]}), tmp_path / "b.parquet", compression="zstd")
    pq.write_table(pa.table({CANARIES["seen"]: [1]}), tmp_path / "c.parquet")
    assert len(traces(tmp_path, texts=(CANARIES["caseid"],))) == 4


def test_12_mutant_a_private_table_in_the_released_root(places: Path, save: Save) -> None:
    """Planted mutant: publishing the encoded rows, as what they are and under a false name."""
    spec = few(save(people(50)))
    run(spec)
    store = Store(Settings().private_root, Settings().released_root, spec.dataset)
    domain = Domain.of({"x": 3})
    rows = pa.table({"x": pa.array([0, 1, 2], pa.uint8())}, schema=tables.build_code_schema(domain))
    ref = store.write_table(rows, rows.schema, "encoded_rows", "encode", "0" * 64, Zone.PRIVATE)
    with pytest.raises(ZoneError):
        store.released.publish("mutant", lambda folder: store.add_released(ref, folder, "rows.parquet"))
    lying = ref.model_copy(update={"zone": Zone.RELEASED})
    with pytest.raises(Exception, match="not the file that was written"):
        store.released.publish("mutant", lambda folder: store.add_released(lying, folder, "rows.parquet"))
    assert not (Settings().released_root / "mutant").exists()


# every command, under Prefect, with everything logged

LATER = ("privsyn.tasks.steps.synthesize.synthesize",)


def commands(places: Path, run_name: str) -> dict[str, tuple[tuple[object, ...], tuple[str, ...]]]:
    """Command beside the release -> its arguments, and where it is made to fail."""
    yaml, slight = places / "people.yaml", places / "slight.json"
    comparing = ("compare", yaml, "--methods", "independent", "--epsilons", 1, "--seeds", 1)
    return {
        "release": (
            ("release", yaml, "--epsilon", 0.3),
            ("privsyn.engine.step.ReleaseStep.read_rows", *LATER),
        ),
        "evaluate": (
            ("evaluate", run_name, "--settings", slight),
            (
                "privsyn.evaluation.scores.average_correlation_difference",
                "privsyn.evaluation.coded_tables.iterate_kept_batches",
            ),
        ),
        "figures": (
            ("evaluate", run_name, "--epsilon-report", 0.5),
            ("privsyn.tasks.steps.quality_figures.count_exactly",),
        ),
        "compare": (comparing, ("privsyn.evaluation.comparison.compare_methods.encode",)),
        "check": (
            ("spec", "check", yaml, "--data", places / "source" / "people.csv"),
            ("privsyn.sources.private_table.Source.batches",),
        ),
        "show": (("ledger", "show", "people"), ()),
        "verify": (("ledger", "verify"), ("privsyn.ledgers.ledger.Ledger.entries",)),
        "export": (("ledger", "export"), ()),
    }


@pytest.mark.parametrize(
    "names", [{"release", "show"}, pytest.param(None, marks=pytest.mark.slow)], ids=["a release", "every command"]
)
def test_12_canaries_reach_nothing_released_or_shown_by_any_command(
    places: Path,
    prefect_server: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    names: set[str] | None,
) -> None:
    """Each command whole and failing: no canary in logs, output, Prefect's database and results, or released files."""
    from prefect.logging.handlers import APILogWorker
    from prefect.settings import PREFECT_LOCAL_STORAGE_PATH, get_current_settings, temporary_settings

    from privsyn.flows.release import release

    (places / "source").mkdir()
    spec = make_spec(
        data=canary_csv(places / "source" / "people.csv"), budget={"epsilon": 50.0, "delta": 1e-8}, **QUICK
    )
    (places / "people.yaml").write_text(json.dumps(spec.model_dump(mode="json", exclude_none=True)), encoding="utf-8")
    slight_settings(places)
    results, messages = [], []
    with everything_logged() as logged, temporary_settings({PREFECT_LOCAL_STORAGE_PATH: places / "results"}):
        summary = release(spec)
        other = make_spec(**{**spec.model_dump(mode="json", exclude_none=True), "null_values": ["", "2"]})
        with monkeypatch.context() as patched:
            patched.setattr("privsyn.tasks.steps.encode.encode", fail_with_canaries)
            with pytest.raises(Exception, match="failed with ValueError") as error:
                release(other)
        messages.append(str(error.value))
        for name, (arguments, failing) in commands(places, summary.run).items():
            if names is not None and name not in names:
                continue
            for place in failing:
                with monkeypatch.context() as patched:
                    patched.setattr(place, fail_with_canaries)
                    results.append(privsyn(*arguments))
                assert results[-1].exit_code == 1, (arguments, place, results[-1].output)
                assert "ValueError" in results[-1].output
            results.append(privsyn(*arguments))
            assert results[-1].exit_code == 0, results[-1].output
        APILogWorker.instance().drain()
    out, err = capfd.readouterr()
    url = get_current_settings().server.database.connection_url
    assert url is not None
    database = Path(url.get_secret_value().partition(":///")[2])
    assert b"one_way_marginals" in b"".join(p.read_bytes() for p in database.parent.glob("*.db*"))
    assert len(logged) > 100
    assert traces(database.parent, texts=(out, err, *messages, *logged, *(r.output for r in results))) == []
    assert traces(places / "results") == []
    assert traces(Settings().released_root) == []
    assert traces(Settings().private_root / "prefect") == []
    for found in traces(Settings().private_root):  # the whole error, for the operator, in the private zone only
        assert found.startswith("failure.txt: ")
