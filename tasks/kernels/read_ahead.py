"""Reading a stream ahead: the next item is made in another thread while the current one is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

from privsyn.tasks.kernels.counting import choose_thread_count

Item = TypeVar("Item")

_END = object()


def read_ahead(items: Iterable[Item], threads: int) -> Iterator[Item]:
    """Yield the items in order, each made by another thread while the one before is used; holds two items at once.

    An error in making an item is raised in the item's place.  ``threads``: 0 for all cores; with 1, nothing is read
    ahead.
    """
    if choose_thread_count(threads) == 1:
        yield from items
        return
    iterator, pool = iter(items), ThreadPoolExecutor(1)
    try:
        following = pool.submit(next, iterator, _END)
        while (item := following.result()) is not _END:
            following = pool.submit(next, iterator, _END)
            yield cast("Item", item)
    finally:
        pool.shutdown(cancel_futures=True)
