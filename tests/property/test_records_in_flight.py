"""The watermark of a partition whose calls overtake each other, against a model: random keys, gaps, orders of completion, failures, deaths
and takeovers by metadata that is cut short. Nothing is lost, each key keeps its order, and after a death only that comes again which was in
hand, done since the last commit, or left out of its metadata."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_actors.group.done_offsets import NOTHING_DONE, DoneOffsets
from kafka_actors.job.worker.machines.record_window import WindowChunk
from kafka_actors.job.worker.machines.records_in_flight import RecordsInFlight
from kafka_actors.types import TopicPartition

P0 = TopicPartition("t", 0)


class Log:
    """Chunks of a partition: offsets with gaps, each with a key; chunks without a record between them."""

    def __init__(self, draw):
        self.records, self.chunks, offset = {}, [], draw(st.integers(0, 5))
        self.first = offset
        for _ in range(draw(st.integers(1, 6))):
            offsets = []
            for _ in range(draw(st.integers(0, 8))):
                offset += draw(st.integers(0, 2))
                self.records[offset] = draw(st.sampled_from([None, b"a", b"b", b"c"]))
                offsets.append(offset)
                offset += 1
            offset += draw(st.integers(0, 2))
            self.chunks.append((offsets, offset))
        self.end = offset

    def batch(self, offsets):
        keys = [self.records[offset] for offset in offsets]
        return pa.record_batch({"key": pa.array(keys, pa.binary()), "offset": pa.array(offsets, pa.int64())})


class Life:
    """A worker that has the partition from an offset on, with what the metadata told it."""

    def __init__(self, log, ordering, committed, told, *, callers, batch_rows):
        self.log, self.called, self.hand, self.now, self.messages = log, [], {}, 0.0, batch_rows == 1
        self.in_flight = RecordsInFlight(
            ordering,
            callers,
            messages=batch_rows == 1,
            batch_rows=batch_rows,
            retries=0,
            most_rows=1 << 20,
            most_bytes=1 << 40,
            may_begin=lambda window: not window.closed,
        )
        self.in_flight.at_once = callers  # of messages
        self.window = self.in_flight.window(P0, (1, 1), 0, committed, told)
        self.left = [
            ([offset for offset in offsets if offset >= committed], behind)
            for offsets, behind in log.chunks
            if behind > committed
        ]
        self.told = told

    def admit(self):
        if self.left:
            offsets, behind = self.left.pop(0)
            keyed = self.in_flight.keyed
            chunk = WindowChunk(self.window, self.log.batch(offsets), behind, 1, keyed=keyed)
            self.in_flight.admit(chunk, self.now)

    def begin(self):
        call = self.in_flight.take(self.now)
        if call is not None:
            self.hand[call.first] = call
        return call

    def offsets(self, call):
        return [int(call.chunk.offsets[row]) for row in call.rows]

    def end(self, call, fails):
        del self.hand[min(offset for offset, of in self.hand.items() if of is call)]
        if fails:
            if len(call.rows) > 1 and self.messages:
                failed = self.offsets(call)[len(call.rows) // 2]
                self.called += [offset for offset in self.offsets(call) if offset < failed]
                self.in_flight.cut(call, failed)
            self.now += 1.0
            if self.messages or not self.in_flight.split(call):
                self.in_flight.again(call, self.now)
            return
        self.called += self.offsets(call)
        self.in_flight.finished(call, self.now)

    def check(self):
        """The watermark and what lies beyond it are those of the records that are done."""
        known = [o for offsets, behind in self.log.chunks for o in offsets if self.window.watermark <= o]
        done = set(self.called)
        told = self.told.has(np.array(known, np.int64), 1) if known else []
        undone = [o for o, was in zip(known, told, strict=True) if o not in done and not was]
        assert all(o >= self.window.watermark for o in undone)
        beyond = self.window.beyond()
        if known:
            says = beyond.has(np.array(known, np.int64), 1)
            assert {o for o, is_done in zip(known, says, strict=True) if is_done} == set(known) - set(undone)
        if undone and not self.left:
            assert self.window.watermark <= undone[0]

    @property
    def over(self):
        return not self.left and not self.hand and self.window.watermark == self.log.end


@settings(max_examples=60)
@given(st.data())
def test_nothing_is_lost_and_keys_keep_their_order_over_deaths(data):
    draw = data.draw
    log = Log(draw)
    done_once, order = set(), {}
    committed, text, ordered = log.first, "", True
    for life_number in range(50):
        ordering = draw(st.sampled_from(["key", "key", "key", "unordered"]))
        ordered = ordered and ordering == "key"
        told = DoneOffsets.of_text(text, committed)
        life = Life(
            log,
            ordering,
            committed,
            told,
            callers=draw(st.integers(1, 4)),
            batch_rows=draw(st.sampled_from([1, 3, None])),
        )
        since = []
        for _ in range(draw(st.integers(1, 40)) if life_number < 4 else 10_000):
            step = draw(st.sampled_from("abbeee")) if life_number < 4 else "abe"[len(since) % 3]
            if step == "a" or (life_number >= 4 and life.left):
                life.admit()
            if step == "b" or life_number >= 4:
                life.begin()
            if life.hand and (step == "e" or life_number >= 4):
                call = life.hand[
                    draw(st.sampled_from(sorted(life.hand))) if life_number < 4 else min(life.hand)
                ]
                since += life.offsets(call)
                life.end(call, fails := life_number < 4 and draw(st.integers(0, 4)) == 0)
                if fails:
                    since = [o for o in since if o not in life.offsets(call)]
            life.check()
            if life.over:
                break
        for offset in life.called:
            key = log.records[offset]
            if ordered and key is not None and offset not in done_once:
                assert offset > order.get(key, -1), "first deliveries of a key come in order"
            if key is not None:
                order[key] = max(offset, order.get(key, -1))
            assert not told.has(np.array([offset]), 1)[0], "what the metadata says is done is not called"
        done_once |= set(life.called)
        if life.over:
            break
        # The worker dies. What it committed last is as it is now, or as it was.
        if draw(st.booleans()):
            committed = life.window.watermark
            text = life.window.beyond().text(committed, draw(st.sampled_from([3_900, 12, 0])))
    assert done_once == set(log.records)
    assert life.window.beyond() == NOTHING_DONE
