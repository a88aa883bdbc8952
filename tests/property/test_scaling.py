"""Whatever comes in: the bounds hold, the delays are obeyed, and nothing flaps."""

from fakes.scaled_job import SimulatedJob
from hypothesis import given
from hypothesis import strategies as st

from kafka_actors.job import Autoscale

RATES = st.lists(
    st.tuples(st.integers(5, 200), st.sampled_from([0.0, 10.0, 300.0, 900.0, 2_500.0, 7_000.0, 40_000.0])),
    min_size=1,
    max_size=8,
)


@st.composite
def policies(draw):
    least = draw(st.integers(1, 6))
    most = draw(st.integers(least, 20))
    return Autoscale(
        min=least,
        max=most,
        initial=draw(st.one_of(st.none(), st.integers(least, most))),
        target_lag_seconds=draw(st.sampled_from([1, 5.0, 30.0, 120.0])),
        target_utilization=draw(st.sampled_from([0.3, 0.7, 1.0])),
        upscale_delay_seconds=draw(st.sampled_from([0.0, 5.0, 30.0])),
        downscale_delay_seconds=draw(st.sampled_from([10.0, 60.0, 300.0])),
    )


@given(
    policy=policies(),
    rates=RATES,
    partitions=st.integers(1, 24),
    start_s=st.sampled_from([0.0, 2.0, 45.0]),
    call_s=st.sampled_from([0.0, 3.0, 20.0]),
    share=st.one_of(st.none(), st.floats(0.1, 1.0)),
    noise=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 1_000),
)
def test_bounds_hold_delays_are_obeyed_and_nothing_flaps(
    policy, rates, partitions, start_s, call_s, share, noise, seed
):
    def shape(t):
        for seconds, rate in rates:
            if t < seconds:
                return rate
            t -= seconds
        return 0.0

    played = SimulatedJob(
        policy,
        shape,
        partitions=partitions,
        start_s=start_s,
        call_s=call_s,
        share=share if partitions > 1 else None,
        noise=noise,
        seed=seed,
    )
    busy = sum(seconds for seconds, _ in rates)
    played.run(busy)

    for decision in played.decisions:
        assert decision.before != decision.after
        assert decision.reason
        assert 1 <= decision.after <= policy.max
        if decision.after > decision.before:
            assert decision.after <= max(partitions, 1), "more workers than partitions"
            assert decision.after <= 4 * decision.before
    for first, second in zip(played.decisions, played.decisions[1:], strict=False):
        assert first.after == second.before
        if second.after < second.before:
            assert second.at - first.at >= policy.downscale_delay_seconds
        else:
            starting = start_s if first.after > first.before else 0.0
            assert second.at - first.at >= policy.upscale_delay_seconds + starting
    assert played.flaps() == []

    # Once nothing comes in any more and all is done, `min` is left, and it stays.
    played.shape = lambda t: 0.0
    for _ in range(30):
        played.run(100)
        if played.lag < 1:
            break
    all_done = played.lag < 1
    # What is needed may fall while a step down waits; and a second step waits as long again.
    played.run(3 * policy.downscale_delay_seconds + policy.target_lag_seconds + start_s + call_s + 10)
    if all_done:
        assert played.scaling.workers == min(policy.min, partitions)
        assert played.run(200) == []
