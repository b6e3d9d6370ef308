"""From a flow on arcs to who sends how much to whom: the path decomposition of a flow."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def decompose_flow(tails: Ints, heads: Ints, flows: Ints, nodes: int) -> tuple[Ints, Ints, Ints]:
    """Senders, receivers and amounts (> 0) whose sum has the net outflow of the flow at every node.

    ``tails``, ``heads``, ``flows`` (>= 0): one entry per arc; nodes 0 .. nodes - 1.  Cycles carry nothing from anyone
    to anyone and are dropped.  At most one move per arc; the same flow gives the same moves.
    """
    used = flows > 0
    tails, heads, flows = (np.ascontiguousarray(x[used], dtype=np.int64) for x in (tails, heads, flows))
    order = np.argsort(tails, kind="stable")
    tails, heads, flows = tails[order], heads[order], flows[order]
    first = np.searchsorted(tails, np.arange(nodes + 1))
    outflow = np.zeros(nodes, np.int64)
    np.add.at(outflow, tails, flows)
    np.subtract.at(outflow, heads, flows)
    moves = np.empty((2 * tails.size, 3), np.int64)  # a path empties an arc, a sender or a receiver
    found = _follow(first, heads, flows, outflow, moves)
    return moves[:found, 0], moves[:found, 1], moves[:found, 2]


@njit(nogil=True, cache=True)
def _follow(first, heads, flows, outflow, moves):  # type: ignore[no-untyped-def]
    """Walk from every sender along arcs with flow left to a receiver; takes the flow away; number of moves."""
    nodes = outflow.shape[0]
    arc = first[:-1].copy()  # the next arc of each node that may have flow left
    place = np.full(nodes, -1, np.int64)  # position on the current path, or -1
    path = np.empty(nodes + 1, np.int64)
    found = 0
    for sender in range(nodes):
        length = 0
        path[0] = sender
        place[sender] = 0
        while outflow[sender] > 0:
            node = path[length]
            if outflow[node] < 0:  # a receiver
                amount = min(outflow[sender], -outflow[node])
                for p in range(length):
                    amount = min(amount, flows[arc[path[p]]])
                for p in range(length):
                    flows[arc[path[p]]] -= amount
                    place[path[p + 1]] = -1
                outflow[sender] -= amount
                outflow[node] += amount
                moves[found, 0], moves[found, 1], moves[found, 2] = sender, node, amount
                found += 1
                length = 0
                continue
            while flows[arc[node]] == 0:
                arc[node] += 1
            target = heads[arc[node]]
            if place[target] < 0:
                length += 1
                path[length] = target
                place[target] = length
                continue
            start = place[target]  # a cycle: take its flow away and go on from its first node
            amount = flows[arc[node]]
            for p in range(start, length):
                amount = min(amount, flows[arc[path[p]]])
            for p in range(start, length + 1):
                flows[arc[path[p]]] -= amount
            for p in range(start + 1, length + 1):
                place[path[p]] = -1
            length = start
        place[sender] = -1
    return found
