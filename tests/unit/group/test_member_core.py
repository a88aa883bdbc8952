"""The transition table itself."""

from __future__ import annotations

import pytest

from kafka_actors.group.machines.member_core import (
    ENDED,
    LEGAL_PREVIOUS,
    IllegalTransition,
    MemberState,
    check_transition,
)


def test_every_state_is_in_the_table_and_can_be_reached():
    assert set(LEGAL_PREVIOUS) == set(MemberState)
    reached = {MemberState.UNJOINED}
    while grown := {s for s, before in LEGAL_PREVIOUS.items() if before & reached} - reached:
        reached |= grown
    assert reached == set(MemberState)


def test_nothing_follows_an_end():
    assert not any(before & ENDED for before in LEGAL_PREVIOUS.values())


def test_every_living_state_can_end():
    for state in set(MemberState) - ENDED:
        check_transition(state, MemberState.FATAL)


@pytest.mark.parametrize("after", MemberState)
def test_what_is_not_in_the_table_raises_and_names_both(after):
    for before in set(MemberState) - LEGAL_PREVIOUS[after]:
        with pytest.raises(IllegalTransition, match=f"from {before.value} to {after.value}"):
            check_transition(before, after)


def test_an_illegal_step_changes_nothing(dialogue):
    d = dialogue()
    d.stable("t-0")
    d.poll(3.0)
    d.member.leave(d.now, 1.0, ask=False)
    d.poll(2.0)
    assert d.member.state is MemberState.LEFT
    before = d.member.generation
    with pytest.raises(IllegalTransition):
        d.member._core.fail(RuntimeError("too late"))
    assert (d.member.state, d.member.generation) == (MemberState.LEFT, before)
