"""Retry topics: whatever fails, dies and comes late, no record is lost, and with `keep_order` none is begun before those of its key before it
are done."""

from fakes.retry_logs import SOURCE, TIERS, Logs, RetryFlight, failure
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

THREE = replace(TIERS, topics=[*TIERS.topics, "t-retry-2m"], delays_s=[*TIERS.delays_s, 120.0])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.integers(0, 3), st.booleans()),
        st.tuples(st.just("admit"), st.just(0), st.just(False)),
        st.tuples(st.just("wait"), st.sampled_from([11, 70, 130]), st.just(False)),
        st.tuples(st.just("flush"), st.integers(0, 3), st.booleans()),
        st.tuples(st.just("commit"), st.just(0), st.just(False)),
        st.tuples(st.just("die"), st.integers(0, 4), st.booleans()),
        st.tuples(st.just("late"), st.integers(1, 3), st.just(False)),
        st.tuples(st.just("more"), st.sampled_from("aab-"), st.just(False)),
    ),
    max_size=40,
)


class Ledger:
    """Checks begins and ends of calls."""

    def __init__(self, keys, *, ordered):
        self.keys, self.ordered = keys, ordered
        self.begun, self.done = set(), set()

    def begins(self, offsets):
        for offset in offsets:
            if self.ordered and offset not in self.begun and self.keys[offset] != "-":
                before = [n for n in range(offset) if self.keys[n] == self.keys[offset] and n not in offsets]
                left = [n for n in before if n not in self.done]
                assert left == [], f"{offset} is begun before {left} of its key are done"
            self.begun.add(offset)


def run(keys, steps, **options):
    logs = Logs(keys)
    ledger = Ledger(keys, ordered=options["tiers"].keep_order)
    flight, hand, late = RetryFlight(logs, **options), [], []

    def taken():
        while len(hand) < 4 and (call := flight.take()) is not None:
            ledger.begins(flight.offsets(call))
            hand.append(call)

    def ends(call, *, well):
        offsets = flight.offsets(call)
        if well:
            ledger.done.update(offsets)
        flight.calls.ended(call, None if well else failure(call))
        ledger.done.update(logs.dead)

    for what, number, flag in steps:
        if what == "admit":
            flight.admit()
            taken()
        elif what == "call":
            taken()
            if hand:
                ends(hand.pop(number % len(hand)), well=flag)
            taken()
        elif what == "more":
            keys.append(number)
            logs.append(SOURCE, number)
            flight.admit()
            taken()
        elif what == "wait":
            flight.flush()
            flight.at += number
            flight.now += number
            flight.lease.renew(flight.now, 60.0)
            flight.admit()
            taken()
        elif what == "flush":
            flight.flush(number)
        elif what == "commit":
            flight.commit()
        elif what == "die":
            flight.flush(number, tell=False)
            if flag:
                late += flight.written
            before, hand = flight, []
            flight = RetryFlight(logs, before.committed, **options)
            flight.at, flight.now = before.at, before.now
            flight.lease.renew(flight.now, 60.0)
        elif what == "late" and late:
            own, flight.written, late = flight.written, late[:number], late[number:]
            flight.flush(tell=False)
            flight.written = own
    return logs, ledger, flight, hand, ends, taken


def to_the_end(logs, ledger, flight, hand, ends, taken):
    for _ in range(400):
        flight.admit()
        taken()
        while hand:
            ends(hand.pop(), well=True)
            taken()
        flight.flush()
        flight.commit()
        if all(g.offset == logs.end(p) for p, g in flight.committed.items()):
            return
        flight.at += 20
        flight.now += 20
        flight.lease.renew(flight.now, 60.0)
    raise AssertionError(f"not at its end: {flight.committed}, {flight.calls.blocked(SOURCE)}")


@settings(max_examples=400)
@given(
    st.lists(st.sampled_from("ab-"), min_size=1, max_size=8),
    STEPS,
    st.sampled_from(["message", "batch"]),
    st.sampled_from([TIERS, THREE]),
    st.booleans(),
)
def test_nothing_is_lost_and_each_key_keeps_its_order(keys, steps, unit, tiers, keep_order):
    scene = run(keys, steps, unit=unit, tiers=replace(tiers, keep_order=keep_order))
    to_the_end(*scene)
    _, ledger, flight = scene[:3]
    assert ledger.done == set(range(len(keys)))
    groups = flight.calls._retries._groups.values()
    assert not any(len(group.keys) for group in groups if group.keys is not None), "no key is held for ever"
