"""Kinds of pairs of members, counted by compositions as by writing all members down."""

from __future__ import annotations

import numpy as np

from privsyn.engine.request import Request
from privsyn.tasks.codecs.person_figures import find_kinds
from tests.support.households import HOUSEHOLD_COLUMNS, make_household_spec


def test_pairs_of_each_kind_are_those_of_members_written_down() -> None:
    of = Request(make_household_spec(), tuple(HOUSEHOLD_COLUMNS)[1:]).encoding.get_compositions()
    for code, members in enumerate(of.members):
        roles = np.repeat(np.arange(len(members)), members)
        neighbours = find_kinds(roles[:-1], roles[1:])
        later = find_kinds(np.full(len(roles[2:]), roles[0]), roles[2:])
        assert (of.pairs[code] == np.bincount(neighbours, minlength=of.kinds)).all()
        assert (of.pairs_with_first[code] == np.bincount(later, minlength=of.kinds)).all()
        assert [of.find_first(place)[code] for place in range(len(roles))] == roles.tolist()
