"""Interrupts: held back from imports and waits, delivered where the run looks, never lost, told as what they were."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import typer

from privsyn.base import interrupts
from privsyn.base.interrupts import check_interrupts, defer_interrupts, watch_interrupts
from privsyn.base.settings import Settings
from privsyn.cli.common import print_errors
from privsyn.data_contracts.domain import Domain
from privsyn.storage.store import Store
from privsyn.tasks.kernels import blocks, counting
from privsyn.tasks.kernels.counting import CodeTable
from privsyn.tasks.privacy import noise
from tests.support.releases import few, release_in_process
from tests.support.specs import people


@pytest.fixture(autouse=True)
def handlers_as_before() -> Iterator[None]:
    ignored = signal.signal(signal.SIGINT, signal.default_int_handler)  # by what a shell starts in its background
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    assert {number: signal.getsignal(number) for number in before} == before
    signal.signal(signal.SIGINT, ignored)


def test_a_signal_waits_for_a_look() -> None:
    with pytest.raises(KeyboardInterrupt), defer_interrupts():
        signal.raise_signal(signal.SIGINT)
        reached = True
        check_interrupts()
        reached = False
    assert reached


def test_a_signal_that_nobody_looked_at_is_delivered_at_the_end() -> None:
    with pytest.raises(KeyboardInterrupt):
        with defer_interrupts():
            signal.raise_signal(signal.SIGINT)
        raise AssertionError("the signal was lost")


def test_a_second_signal_is_delivered_at_once() -> None:
    with defer_interrupts():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        check_interrupts()  # both are done with


def test_a_signal_is_delivered_after_the_grace_to_a_run_that_does_not_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "GRACE", 0.05)
    with defer_interrupts():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            threading.Event().wait(60)


def test_signals_between_items_are_delivered_between_them() -> None:
    taken = []
    with defer_interrupts(), pytest.raises(KeyboardInterrupt):
        for item in watch_interrupts(range(9)):
            taken.append(item)
            if item == 3:
                signal.raise_signal(signal.SIGINT)
    assert taken == [0, 1, 2, 3]


class Interrupting:
    """A finder of modules that raises a signal, and finds nothing."""

    def find_spec(self, *arguments: Any) -> None:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("grace", [0, 60])
def test_an_import_ends_before_a_signal_is_delivered(
    grace: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether anything looks or not: raised inside an import, the lock of all imports may stay held for good."""
    (tmp_path / "some_module.py").write_text("WHOLE = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    with pytest.raises(KeyboardInterrupt), defer_interrupts(grace=grace):
        whole = importlib.import_module("some_module").WHOLE
        check_interrupts()
        threading.Event().wait(60)
    assert whole
    del sys.modules["some_module"]


def test_without_grace_a_signal_outside_imports_is_delivered_at_once() -> None:
    with defer_interrupts(grace=0), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_the_longer_grace_holds_inside_and_what_came_is_delivered_when_it_ends() -> None:
    with defer_interrupts(grace=0):
        with pytest.raises(KeyboardInterrupt), defer_interrupts(grace=60):
            signal.raise_signal(signal.SIGINT)
            reached = True
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert reached


def test_a_forked_child_has_the_handlers_of_before() -> None:
    before = signal.getsignal(signal.SIGINT)
    with defer_interrupts():
        child = os.fork()
        if not child:
            os._exit(0 if signal.getsignal(signal.SIGINT) is before else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_a_signal_that_is_ignored_or_ends_the_process_stays_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with defer_interrupts():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
            signal.raise_signal(signal.SIGINT)
            check_interrupts()
    finally:
        signal.signal(signal.SIGINT, before)


def test_in_another_thread_nothing_is_held_back() -> None:
    seen: list[Any] = []

    def work() -> None:
        with defer_interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


@pytest.mark.usefixtures("places")
def test_an_import_of_a_release_is_not_interrupted(save: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted there, its lock may stay held, and the threads that draw the noise wait for it for ever."""
    (tmp_path / "half_imported.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\nWHOLE = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    steps = []

    def report(step: str, done: int, total: int) -> None:
        steps.append(step)
        if step == "one_way_marginals" and "half_imported" not in sys.modules:
            assert importlib.import_module("half_imported").WHOLE

    with pytest.raises(KeyboardInterrupt):
        release_in_process(few(save(people(60))), Settings(), report=report)
    assert sys.modules.pop("half_imported").WHOLE
    assert steps[-1] == "one_way_marginals"
    assert release_in_process(few(save(people(60))), Settings()).drawn


def test_all_that_drawing_imports_is_there_before_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    drawn: list[int] = []
    noise._build_mechanism.cache_clear()
    noise.load_library.cache_clear()
    build = noise._build_mechanism.__wrapped__

    def note(sigma: float) -> Any:
        built.append(threading.get_ident())
        return build(sigma)

    class Source(noise.OpenDPNoise):
        def draw(self, sigma: float, cells: int) -> Any:
            drawn.append(len(built))
            return np.zeros(cells, dtype=np.int64)

    monkeypatch.setattr(noise, "_build_mechanism", note)
    noise.draw_all(Source(), [(1.0, 1), (2.0, 1)], threads=2)
    assert built == [threading.get_ident()] and drawn == [1, 1]


def test_a_look_ends_the_wait_for_a_thread_that_never_ends() -> None:
    """The main thread does not wait for threads that draw: it looks, and what it finds there passes on."""
    free = threading.Event()

    class Stuck(noise.OpenDPNoise):
        def draw(self, sigma: float, cells: int) -> Any:
            free.wait(60)
            return np.zeros(cells, dtype=np.int64)

    def look() -> None:
        raise KeyboardInterrupt

    try:
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            noise.draw_all(Stuck(), [(1.0, 1), (2.0, 1)], threads=2, check=look)
        assert not free.is_set() and time.monotonic() - started < 30
    finally:
        free.set()


def test_who_waits_for_a_lock_can_be_interrupted(tmp_path: Path) -> None:
    one = Store(tmp_path / "private", tmp_path / "released", "people")
    two = Store(tmp_path / "private", tmp_path / "released", "people")
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    with one.lock("release-people"):
        timer.start()
        with pytest.raises(KeyboardInterrupt), defer_interrupts(), two.lock("release-people"):
            raise AssertionError("two hold the lock")


def test_a_stream_is_interrupted_between_batches() -> None:
    batch = pa.record_batch({"a": [1]})
    with defer_interrupts(), pytest.raises(KeyboardInterrupt):
        rows = watch_interrupts(batch for _ in range(10))
        next(iter(rows))
        signal.raise_signal(signal.SIGINT)
        list(rows)


@pytest.mark.parametrize("module", [blocks, counting], ids=lambda module: module.__name__.rsplit(".")[-1])
def test_all_that_counting_imports_is_there_before_its_threads(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tallies = "privsyn.tasks.kernels.small_kernels"
    before: list[bool] = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, threads: int) -> None:
            before.append(tallies in sys.modules)
            super().__init__(threads)

    domain = Domain(("a", "b"), (2, 3))
    codes = np.zeros(4, dtype=np.uint8)
    table = CodeTable(domain, (codes, codes))
    monkeypatch.setattr(module, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(counting, "_ROWS_OF_ONE_THREAD", 0)
    monkeypatch.delitem(sys.modules, tallies, raising=False)
    cliques = [("a",), ("b",), ("a", "b")]
    counts = (
        blocks.count_blocks([table], domain, cliques, threads=2)
        if module is blocks
        else list(table.counts(cliques, threads=2))
    )
    assert before and all(before) and [int(c.sum()) for c in counts] == [4, 4, 4]


def test_a_signal_that_comes_while_one_is_noted_waits_for_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both come in an import, the second inside the first one's handler, wherever that is in waking the watcher."""
    deferred = interrupts._Deferred(3.0)
    importing: Any = SimpleNamespace(f_code=SimpleNamespace(co_filename="<frozen importlib._bootstrap>"), f_back=None)
    notify = threading.Condition.notify_all

    def notify_and_note(condition: threading.Condition) -> None:
        if condition is getattr(deferred.changed, "_cond", None):  # of an event, whose lock is held here
            deferred.note(signal.SIGINT, importing)
        notify(condition)

    monkeypatch.setattr(threading.Condition, "notify_all", notify_and_note)
    noting = threading.Thread(target=deferred.note, args=(signal.SIGINT, importing), daemon=True)
    noting.start()
    noting.join(5)
    assert not noting.is_alive()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_under_another_error_is_told_as_one(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(typer.Exit) as ended, print_errors(debug=False):
        try:
            os.kill(os.getpid(), number)
        except KeyboardInterrupt:
            raise SystemError("initialization of a module raised") from None
    assert ended.value.exit_code == 1
    assert "stopped. Run the same command again" in " ".join(capsys.readouterr().err.split())
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before


def test_an_error_without_an_interrupt_is_told_as_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), print_errors(debug=False):
        raise SystemError("initialization of a module raised")
    assert "unexpected SystemError" in capsys.readouterr().err


def test_a_full_disk_behind_standard_output_is_told_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, print_errors(debug=False), Path("/dev/full").open("w") as full:
        full.write("answer")
        full.flush()
    assert ended.value.exit_code == 1
    told = " ".join(capsys.readouterr().err.split())
    assert told.startswith("privsyn: what is written does not fit or cannot be kept: No space left on device. Free")
