"""A producer's transactions: requests in their order, errors in each state, and the verbs."""

import asyncio
from types import SimpleNamespace

import pytest
from fakes.loop import turns

from kafka_actors import errors
from kafka_actors.base import tasks
from kafka_actors.base.backoff import RetryTimer
from kafka_actors.config import ProducerConfig, build
from kafka_actors.group.commit_metadata import pack
from kafka_actors.producer.machines.transaction_errors import TransactionApi, TransactionState
from kafka_actors.producer.machines.transaction_requests import CONCURRENT_S, TakeIdentity
from kafka_actors.producer.machines.transactions import TransactionManager
from kafka_actors.producer.record_intake import RecordIntake
from kafka_actors.producer.transactions import Transactions
from kafka_actors.protocol import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    FindCoordinatorResponse,
    InitProducerIdResponse,
    OffsetFetchResponse,
    TxnOffsetCommitResponse,
)
from kafka_actors.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnTopicResult,
)
from kafka_actors.protocol.messages.offset_fetch import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kafka_actors.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kafka_actors.records.kernel import ACTIVE
from kafka_actors.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

API, STATE = TransactionApi, TransactionState
A, B = TopicPartition("t", 0), TopicPartition("t", 1)
OFFSETS = {A: OffsetAndMetadata(42)}
MEMBER = ConsumerGroupMetadata("g", 4, "m-1")
UNKNOWN_TOPIC, METADATA_TOO_LARGE = 3, 12
FENCED, BAD_EPOCH, TXN_STATE, MAPPING, CONCURRENT, MOVED, ABORTABLE = 90, 47, 48, 49, 51, 16, 120
VERSIONS = pytest.mark.parametrize("version", [0, 1, 2])


class Coordinator:
    """Steps a machine by hand and answers it: requests go to `sent`, identities that it takes over to `identities`."""

    def __init__(self, version=1):
        self.machine = TransactionManager("copier", 60_000, RetryTimer(0.1, 1.0))
        self.version = version
        self.now = 0.0
        self.sent = []
        self.identities = []
        self.epoch = 0
        self.committed = -1
        self.metadata = ""

    def poll(self):
        """The request that is due, if any."""
        request = None
        for action in self.machine.poll(self.now).actions:
            if isinstance(action, TakeIdentity):
                self.identities.append((action.producer_id, action.producer_epoch))
            else:
                request = action
                self.sent.append(action.api)
        return request

    def expect(self, api):
        """The request that is due, which is one of `api`; coordinators are found on the way."""
        request = self.poll()
        while request is not None and request.api is API.FIND_COORDINATOR and api is not request.api:
            self.answer(request)
            request = self.poll()
        assert request is not None, f"nothing is asked, {api} was expected"
        assert request.api is api
        return request

    def answer(self, request, code=0):
        self.machine.on_response(request, self.response(request, code), self.now)

    def lose(self, request, error=errors.DisconnectedError):
        self.machine.on_response(request, error("lost"), self.now)

    def does(self, api, code=0):
        self.answer(self.expect(api), code)

    def later(self, seconds=10.0):
        self.now += seconds

    def response(self, request, code):
        match request.api:
            case API.FIND_COORDINATOR:
                return FindCoordinatorResponse(error_code=code, node_id=1 + request.body.key_type)
            case API.INIT_PRODUCER_ID:
                self.epoch += not code and request.body.producer_id >= 0
                return InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=self.epoch)
            case API.ADD_PARTITIONS:
                results = [
                    AddPartitionsToTxnTopicResult(
                        t.name, [AddPartitionsToTxnPartitionResult(p, code) for p in t.partitions]
                    )
                    for t in request.body.v3_and_below_topics
                ]
                return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
            case API.ADD_OFFSETS:
                return AddOffsetsToTxnResponse(error_code=code)
            case API.OFFSET_COMMIT:
                parts = [TxnOffsetCommitResponsePartition(0, code)]
                return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic("t", parts)])
            case API.OFFSET_FETCH:
                parts = [
                    OffsetFetchResponsePartitions(0, self.committed, metadata=self.metadata, error_code=code)
                ]
                topics = [OffsetFetchResponseTopics(name="t", partitions=parts)]
                return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])
            case API.END:
                if self.version < 2:
                    return EndTxnResponse(error_code=code)
                self.epoch += not code
                return EndTxnResponse(error_code=code, producer_id=7, producer_epoch=self.epoch)

    # ------------------------------------------------------------ beginnings

    def initialized(self):
        self.machine.initialize()
        self.does(API.INIT_PRODUCER_ID)
        self.sent.clear()
        return self

    def begun(self):
        """In a transaction that nothing was written in."""
        self.initialized().machine.begin(self.version)
        return self

    def written(self):
        """In a transaction with an acknowledged batch."""
        self.begun()
        if not self.machine.admits(A):
            self.does(API.ADD_PARTITIONS)
        assert self.machine.admits(A)
        self.sent.clear()
        return self


def test_a_producer_gets_its_id_from_the_coordinator_of_its_transactional_id():
    c = Coordinator()
    c.machine.initialize()
    found = c.poll()
    assert (found.api, found.node, found.body.key_type) == (API.FIND_COORDINATOR, None, 1)
    c.answer(found)
    asked = c.poll()
    assert (asked.api, asked.node, asked.body.producer_id) == (API.INIT_PRODUCER_ID, 2, -1)
    assert c.poll() is None  # one request at a time
    c.answer(asked)
    assert (c.poll(), c.identities, c.machine.state) == (None, [(7, 0)], STATE.READY)


@pytest.mark.parametrize("version", [0, 1])
def test_below_version_2_partitions_and_groups_join_first(version):
    c = Coordinator(version).begun()
    assert not c.machine.admits(A)
    assert not c.machine.admits(B)
    request = c.expect(API.ADD_PARTITIONS)
    assert request.body.v3_and_below_topics[0].partitions == [0, 1]
    assert not c.machine.admits(A)  # not before the answer
    c.answer(request)
    assert c.machine.admits(A)
    assert c.machine.admits(B)
    first, second = c.machine.add_offsets(OFFSETS, MEMBER), c.machine.add_offsets({B: OFFSETS[A]}, MEMBER)
    c.does(API.ADD_OFFSETS)
    assert not first.done
    c.does(API.OFFSET_COMMIT)
    assert first.done
    assert not second.done
    c.does(API.OFFSET_COMMIT)
    assert second.done
    c.machine.commit()
    c.does(API.END)
    assert (c.poll(), c.machine.state, c.identities) == (None, STATE.READY, [(7, 0)])
    assert c.sent.count(API.ADD_OFFSETS) == 1


def test_under_version_2_they_join_by_themselves_and_each_transaction_has_its_epoch():
    c = Coordinator(2).begun()
    assert c.machine.admits(A)
    offsets = c.machine.add_offsets(OFFSETS, MEMBER)
    c.does(API.OFFSET_COMMIT)
    assert offsets.done
    c.machine.commit()
    request = c.expect(API.END)
    assert request.min_version == 5
    c.answer(request)
    assert (c.poll(), c.machine.state, c.identities) == (None, STATE.READY, [(7, 0), (7, 1)])
    c.machine.begin(2)
    assert c.machine.admits(A)
    c.machine.abort()
    assert c.expect(API.END).body.producer_epoch == 1


def test_a_used_up_epoch_brings_another_producer_id():
    c = Coordinator(2).written()
    c.machine.commit()
    request = c.expect(API.END)
    c.machine.on_response(request, EndTxnResponse(producer_id=8, producer_epoch=0), c.now)
    c.poll()
    assert c.identities[-1] == (8, 0)
    c.machine.begin(2)
    c.machine.admits(A)
    c.machine.commit()
    assert (c.expect(API.END).body.producer_id, c.machine.state) == (8, STATE.COMMITTING)


@VERSIONS
@pytest.mark.parametrize("verb", ["commit", "abort"])
def test_a_transaction_ends_only_when_nothing_is_on_the_wire(version, verb):
    c = Coordinator(version).written()
    c.machine.busy = True
    getattr(c.machine, verb)()
    assert c.poll() is None
    c.machine.busy = False
    assert c.expect(API.END).body.committed is (verb == "commit")


@VERSIONS
@pytest.mark.parametrize("verb", ["commit", "abort"])
def test_an_empty_transaction_ends_without_a_request(version, verb):
    c = Coordinator(version).begun()
    getattr(c.machine, verb)()
    assert (c.poll(), c.machine.state, c.sent) == (None, STATE.READY, [])


@VERSIONS
def test_an_end_without_an_answer_is_sent_again_as_it_was_until_it_is_answered(version):
    c = Coordinator(version).written()
    c.machine.commit()
    bodies = []
    for error in (errors.DisconnectedError, errors.KafkaTimeoutError, errors.NodeNotReadyError):
        request = c.expect(API.END)
        bodies.append(request.body)
        c.lose(request, error)
        assert c.poll() is None  # a backoff
        c.later()
    assert bodies == bodies[:1] * 3
    c.does(API.END, MOVED)
    c.later()
    assert API.FIND_COORDINATOR in c.sent
    c.does(API.END)
    assert (c.poll(), c.machine.state) == (None, STATE.READY)
    assert API.INIT_PRODUCER_ID not in c.sent


@VERSIONS
@pytest.mark.parametrize("code", [FENCED, BAD_EPOCH, MAPPING, TXN_STATE])
def test_after_an_unanswered_commit_an_error_leaves_the_outcome_open(version, code):
    for lost in (False, True):
        c = Coordinator(version).written()
        c.machine.commit()
        if lost:
            c.lose(c.expect(API.END))
            c.later()
        c.does(API.END, code)
        if (version, code) == (2, TXN_STATE):  # it is aborted: see below
            continue
        assert c.machine.state is STATE.FATAL_ERROR
        assert c.machine.outcome_unknown is lost


@pytest.mark.parametrize("lost", [False, True])
def test_under_version_2_a_transaction_that_took_too_long_is_aborted_and_the_next_one_begun(lost):
    c = Coordinator(2).written()
    c.machine.commit()
    if lost:
        c.lose(c.expect(API.END))
        c.later()
    c.does(API.END, TXN_STATE)
    assert c.machine.state is STATE.ABORTABLE_ERROR
    with pytest.raises(errors.TransactionAbortedError, match="longer than transaction_timeout_ms") as told:
        c.machine.begin(2)
    assert not told.value.fatal
    c.machine.abort()
    c.does(API.END)
    assert (c.poll(), c.machine.state, c.identities) == (None, STATE.READY, [(7, 0), (7, 1)])


@VERSIONS
def test_an_unknown_error_in_answer_to_a_commit_leaves_it_open(version):
    c = Coordinator(version).written()
    c.machine.commit()
    c.does(API.END, -1)
    assert (c.machine.state, c.machine.outcome_unknown) == (STATE.FATAL_ERROR, True)


@pytest.mark.parametrize("error", [errors.NodeNotReadyError, errors.ConnectionFailedError])
def test_a_commit_that_was_never_sent_is_not_open(error):
    c = Coordinator(1).written()
    c.machine.commit()
    c.lose(c.expect(API.END), error)
    c.later()
    c.does(API.END, FENCED)
    assert (c.machine.outcome_unknown, c.machine.committed) == (False, False)
    assert c.machine.error.fatal


@VERSIONS
@pytest.mark.parametrize(("committed", "unknown"), [(-1, False), (41, False), (42, True), (50, True)])
def test_the_groups_stable_offsets_tell_that_nothing_was_committed(version, committed, unknown):
    c = Coordinator(version).written()
    c.committed = committed
    c.machine.add_offsets(OFFSETS, MEMBER)
    if version < 2:
        c.does(API.ADD_OFFSETS)
    c.does(API.OFFSET_COMMIT)
    c.machine.commit()
    c.lose(c.expect(API.END))
    c.later()
    c.does(API.END, FENCED)
    assert c.machine.state is STATE.COMMITTING
    request = c.expect(API.OFFSET_FETCH)
    assert request.body.require_stable
    c.answer(request, 88)  # UNSTABLE_OFFSET_COMMIT
    c.later()
    c.does(API.OFFSET_FETCH)
    assert (c.machine.state, c.machine.outcome_unknown) == (STATE.FATAL_ERROR, unknown)
    assert type(c.machine.error) is errors.ProducerFencedError


@pytest.mark.parametrize("metadata", ["as it was written", "another transaction's"])
def test_stable_offsets_that_name_the_transaction_tell_that_it_was_committed(metadata):
    c = Coordinator(2).written()
    c.machine.add_offsets(OFFSETS, MEMBER)
    request = c.expect(API.OFFSET_COMMIT)
    c.answer(request)
    c.committed, c.metadata = 42, request.body.topics[0].partitions[0].committed_metadata
    if metadata != "as it was written":
        c.metadata = c.metadata.replace("7/0/1", "7/0/2")
    c.machine.commit()
    c.lose(c.expect(API.END))
    c.later()
    c.does(API.END, FENCED)
    c.does(API.OFFSET_FETCH)
    assert c.machine.state is STATE.FATAL_ERROR
    assert c.machine.committed is (metadata == "as it was written")
    assert c.machine.outcome_unknown is not c.machine.committed


def test_each_transaction_names_itself_in_its_offsets():
    c = Coordinator(2).initialized()
    seen = []
    for _ in range(2):
        c.machine.begin(2)
        c.machine.add_offsets({A: OffsetAndMetadata(42, "note")}, MEMBER)
        request = c.expect(API.OFFSET_COMMIT)
        c.answer(request)
        c.machine.commit()
        c.does(API.END)
        c.poll()
        seen.append(request.body.topics[0].partitions[0].committed_metadata)
    assert seen == [
        '{"kafka-actors":1,"transaction":"7/0/1","metadata":"note"}',
        '{"kafka-actors":1,"transaction":"7/1/2","metadata":"note"}',
    ]


@VERSIONS
def test_offsets_that_are_refused_for_long_end_the_transaction(version):
    c = Coordinator(version).written()
    c.machine._offsets_s = 120.0
    c.machine.add_offsets(OFFSETS, MEMBER)
    if version < 2:
        c.does(API.ADD_OFFSETS)
    for _ in range(12):
        c.does(API.OFFSET_COMMIT, 3)  # UNKNOWN_TOPIC_OR_PARTITION: its topic was deleted
        assert c.machine.state is STATE.IN_TRANSACTION
        c.later()
    c.does(API.OFFSET_COMMIT, 3)
    assert c.machine.state is STATE.ABORTABLE_ERROR
    assert type(c.machine.error) is errors.UnknownTopicOrPartitionError


@VERSIONS
def test_offsets_go_once_more_with_the_users_own_text_alone_where_their_metadata_is_too_large(version):
    c = Coordinator(version).written()
    text = '{"kafka-actors":1,"metadata":"as of another client"}'
    offsets = c.machine.add_offsets({A: OffsetAndMetadata(42, pack(text, bytes(16), "c"))}, MEMBER)
    if version < 2:
        c.does(API.ADD_OFFSETS)
    c.does(API.OFFSET_COMMIT, METADATA_TOO_LARGE)
    assert (c.machine.state, c.machine.error, offsets.done) == (STATE.IN_TRANSACTION, None, False)
    request = c.expect(API.OFFSET_COMMIT)
    assert request.body.topics[0].partitions[0].committed_metadata == text
    c.answer(request, METADATA_TOO_LARGE)  # of the text itself
    assert c.machine.state is STATE.ABORTABLE_ERROR
    assert type(c.machine.error) is errors.OffsetMetadataTooLargeError


def test_what_is_done_beyond_an_offset_is_not_left_out_of_a_transaction():
    """Its records would be processed twice."""
    c = Coordinator(2).written()
    c.machine.add_offsets({A: OffsetAndMetadata(42, pack("", bytes(16), done="1"))}, MEMBER)
    c.does(API.OFFSET_COMMIT, METADATA_TOO_LARGE)
    assert c.machine.state is STATE.ABORTABLE_ERROR


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(("committed", "unknown"), [(41, False), (42, True)])
def test_offsets_without_the_transactions_name_tell_only_that_it_was_not_committed(
    version, committed, unknown
):
    c = Coordinator(version).written()
    c.machine.add_offsets(OFFSETS, MEMBER)
    if version < 2:
        c.does(API.ADD_OFFSETS)
    c.does(API.OFFSET_COMMIT, METADATA_TOO_LARGE)
    c.does(API.OFFSET_COMMIT)
    c.machine.commit()
    c.lose(c.expect(API.END))
    c.later()
    c.does(API.END, FENCED)
    c.committed = committed
    c.does(API.OFFSET_FETCH)
    assert (c.machine.state, c.machine.outcome_unknown) == (STATE.FATAL_ERROR, unknown)


@VERSIONS
def test_a_batch_that_was_written_at_a_second_try_raises_the_epoch_after_the_commit(version):
    c = Coordinator(version).written()
    c.machine.batch_repeated()
    c.machine.commit()
    c.does(API.END)
    if version < 2:
        request = c.expect(API.INIT_PRODUCER_ID)
        assert (request.body.producer_id, request.body.producer_epoch) == (7, 0)
        c.answer(request)
    assert (c.poll(), c.machine.state, c.machine.committed) == (None, STATE.READY, True)
    assert c.identities == [(7, 0), (7, 1)]


def test_a_producer_that_is_fenced_after_its_commit_has_committed():
    c = Coordinator(1).written()
    c.machine.batch_repeated()
    c.machine.commit()
    c.does(API.END)
    c.does(API.INIT_PRODUCER_ID, FENCED)
    assert (c.machine.state, c.machine.committed) == (STATE.FATAL_ERROR, True)


def test_offsets_that_cannot_be_asked_for_leave_it_open():
    c = Coordinator(2).written()
    c.machine.add_offsets(OFFSETS, MEMBER)
    c.does(API.OFFSET_COMMIT)
    c.machine.commit()
    c.lose(c.expect(API.END))
    c.later()
    c.does(API.END, FENCED)
    c.does(API.OFFSET_FETCH, 30)  # GROUP_AUTHORIZATION_FAILED
    assert (c.machine.state, c.machine.outcome_unknown) == (STATE.FATAL_ERROR, True)
    assert type(c.machine.error) is errors.ProducerFencedError


def test_a_commit_that_may_have_reached_the_log_leaves_it_open_too():
    c = Coordinator().written()
    c.machine.commit()
    c.does(API.END, 15)  # COORDINATOR_NOT_AVAILABLE: its log didn't replicate in time
    c.later()
    c.does(API.END, FENCED)
    assert c.machine.outcome_unknown


def test_markers_that_are_still_being_written_are_waited_for_a_moment():
    c = Coordinator().begun()
    c.machine.admits(A)
    c.does(API.ADD_PARTITIONS, CONCURRENT)
    assert c.machine.poll(c.now).next_wake == c.now + CONCURRENT_S
    c.later(CONCURRENT_S)
    c.does(API.ADD_PARTITIONS)
    assert c.machine.admits(A)


@VERSIONS
@pytest.mark.parametrize("code", [FENCED, BAD_EPOCH])
def test_a_fenced_producer_is_ended_by_a_named_error_and_stays_fenced(version, code):
    c = Coordinator(version).written()
    c.machine.add_offsets(OFFSETS, MEMBER)
    if version < 2:
        c.does(API.ADD_OFFSETS)
    c.does(API.OFFSET_COMMIT, code)
    assert c.machine.state is STATE.FATAL_ERROR
    assert c.poll() is None
    for verb in (
        c.machine.initialize,
        lambda: c.machine.begin(version),
        c.machine.commit,
        c.machine.abort,
        lambda: c.machine.add_offsets(OFFSETS, MEMBER),
    ):
        with pytest.raises(errors.ProducerFencedError, match="another producer began"):
            verb()


@pytest.mark.parametrize("code", [22, 25, ABORTABLE])
def test_refused_offsets_end_the_transaction_and_not_the_producer(code):
    c = Coordinator(2).written()
    offsets = c.machine.add_offsets(OFFSETS, MEMBER)
    c.does(API.OFFSET_COMMIT, code)
    assert (c.machine.state, offsets.done) == (STATE.ABORTABLE_ERROR, False)
    with pytest.raises(type(errors.error_for_code(code))):
        c.machine.commit()
    c.machine.abort()
    c.does(API.END)
    assert (c.poll(), c.machine.state, c.machine.error) == (None, STATE.READY, None)


@VERSIONS
def test_a_batch_that_failed_has_to_be_aborted_and_the_epoch_is_raised(version):
    c = Coordinator(version).written()
    c.machine.commit()
    c.machine.batch_failed(errors.DeliveryTimeoutError("t", 0, 1, 100, True), sent=True)
    assert c.machine.state is STATE.ABORTABLE_ERROR
    c.machine.abort()
    c.does(API.END)
    if version < 2:
        request = c.expect(API.INIT_PRODUCER_ID)
        assert (request.body.producer_id, request.body.producer_epoch) == (7, 0)  # its own: KIP-360
        assert c.machine.state is STATE.ABORTING
        c.answer(request)
    assert (c.poll(), c.machine.state, c.identities) == (None, STATE.READY, [(7, 0), (7, 1)])


def test_a_batch_that_was_never_sent_leaves_the_epoch():
    c = Coordinator(1).written()
    c.machine.batch_failed(errors.DeliveryTimeoutError("t", 0, 1, 100, False), sent=False)
    c.machine.abort()
    c.does(API.END)
    assert (c.poll(), c.machine.state, c.identities) == (None, STATE.READY, [(7, 0)])


def test_a_producer_that_was_fenced_meanwhile_gets_no_new_epoch():
    c = Coordinator(1).written()
    c.machine.batch_failed(errors.InvalidProducerEpochError(), sent=True)
    assert c.machine.state is STATE.ABORTABLE_ERROR
    c.machine.abort()
    c.does(API.END)
    c.does(API.INIT_PRODUCER_ID, FENCED)
    assert c.machine.state is STATE.FATAL_ERROR
    assert type(c.machine.error) is errors.ProducerFencedError


def test_there_is_nothing_to_abort_where_no_request_has_begun_it():
    c = Coordinator(1).begun()
    c.machine.admits(A)
    c.lose(c.expect(API.ADD_PARTITIONS))
    c.machine.abort()
    c.later()
    c.does(API.END, TXN_STATE)
    assert (c.poll(), c.machine.state) == (None, STATE.READY)


@VERSIONS
def test_a_transaction_that_was_begun_and_is_unknown_is_an_error(version):
    c = Coordinator(version).written()
    c.machine.abort()
    c.does(API.END, TXN_STATE)
    assert c.machine.state is STATE.FATAL_ERROR


def test_an_error_of_what_was_on_its_way_when_the_abort_began_does_not_matter():
    c = Coordinator(2).written()
    c.machine.add_offsets(OFFSETS, MEMBER)
    request = c.expect(API.OFFSET_COMMIT)
    c.machine.abort()
    c.answer(request, 22)
    assert c.machine.state is STATE.ABORTING
    c.does(API.END)
    assert (c.poll(), c.machine.state) == (None, STATE.READY)


def test_a_group_whose_coordinator_may_not_be_asked_for_keeps_nobody_from_an_abort():
    c = Coordinator(2).written()
    c.machine.add_offsets(OFFSETS, MEMBER)
    request = c.poll()
    assert request.api is API.FIND_COORDINATOR
    c.machine.abort()
    c.answer(request, 30)
    assert c.machine.state is STATE.ABORTING
    c.does(API.END)
    assert (c.poll(), c.machine.state) == (None, STATE.READY)


@VERSIONS
@pytest.mark.parametrize("answered", [True, False])
def test_offsets_that_were_not_answered_raise_the_epoch_as_a_batch_does(version, answered):
    """Partitions move between a job's workers within one generation: a late copy would take an offset back in a later transaction."""
    c = Coordinator(version).written()
    c.machine.add_offsets(OFFSETS, MEMBER)
    if version < 2:
        c.does(API.ADD_OFFSETS)
    request = c.expect(API.OFFSET_COMMIT)
    c.answer(request, 14) if answered else c.lose(request)
    c.later()
    c.does(API.OFFSET_COMMIT)
    c.machine.commit()
    c.does(API.END)
    if version < 2 and not answered:
        c.does(API.INIT_PRODUCER_ID)
    assert (c.poll(), c.machine.state, c.machine.committed) == (None, STATE.READY, True)


def test_a_right_that_was_missing_may_be_given_and_asked_for_again():
    c = Coordinator()
    c.machine.initialize()
    c.does(API.INIT_PRODUCER_ID, 53)
    assert c.machine.state is STATE.UNINITIALIZED
    assert type(c.machine.error) is errors.TransactionalIdAuthorizationFailedError
    assert str(c.machine.error).endswith("needs the right Write on transactional-id 'copier'")
    c.machine.initialize()
    c.does(API.INIT_PRODUCER_ID)
    assert (c.poll(), c.machine.state, c.machine.error) == (None, STATE.READY, None)


def test_verbs_out_of_turn_are_refused():
    c = Coordinator()
    for verb, text in (
        (
            lambda: c.machine.begin(1),
            r"begin_transaction: the producer is not initialized.*: call init_transactions\(\)",
        ),
        (
            c.machine.commit,
            r"commit_transaction: the producer is not initialized.* and begin_transaction\(\) first",
        ),
    ):
        with pytest.raises(errors.UsageError, match=text):
            verb()
    c.begun()
    with pytest.raises(
        errors.UsageError,
        match=r"begin_transaction: the producer is in a transaction.* it has one at a time",
    ):
        c.machine.begin(1)
    c.machine.commit()
    for verb in (c.machine.commit, c.machine.abort, lambda: c.machine.add_offsets(OFFSETS, MEMBER)):
        with pytest.raises(errors.UsageError, match="the producer is committing"):
            verb()


# ---------------------------------------------------------------- one producer under several ids


def test_a_producer_becomes_that_of_another_transactional_id():
    c = Coordinator()
    c.machine.take_over("task-1")
    found = c.poll()
    assert (found.api, found.body.coordinator_keys) == (API.FIND_COORDINATOR, ["task-1"])
    c.answer(found)
    c.does(API.INIT_PRODUCER_ID)
    assert c.poll() is None
    c.machine.take_over("task-2")
    found = c.poll()
    assert (found.api, found.body.coordinator_keys) == (API.FIND_COORDINATOR, ["task-2"])
    c.answer(found)
    asked = c.expect(API.INIT_PRODUCER_ID)
    assert (asked.body.transactional_id, asked.body.producer_id, asked.body.producer_epoch) == (
        "task-2",
        -1,
        -1,
    )
    c.answer(asked)
    assert (c.poll(), c.machine.state, len(c.identities)) == (None, STATE.READY, 2)


def test_it_may_not_within_a_transaction():
    c = Coordinator()
    c.machine.take_over("task-1")
    c.does(API.INIT_PRODUCER_ID)
    c.machine.begin(1)
    with pytest.raises(errors.UsageError, match="take_over: the producer is in a transaction"):
        c.machine.take_over("task-2")


@pytest.mark.parametrize("code", [22, 25, 82])
@VERSIONS
def test_offsets_of_a_membership_that_is_refused_may_be_given_again(version, code):
    """They were not taken, so the transaction is as it was before (KIP-447)."""
    c = Coordinator(version).written()
    refused = c.machine.add_offsets(OFFSETS, MEMBER, again=True)
    if version < 2:
        c.does(API.ADD_OFFSETS)
    c.does(API.OFFSET_COMMIT, code)
    assert isinstance(refused.refused, type(errors.error_for_code(code)))
    assert (refused.done, c.machine.state, c.machine.error) == (False, STATE.IN_TRANSACTION, None)
    newer = c.machine.add_offsets(OFFSETS, ConsumerGroupMetadata("g", 5, "m-2"), again=True)
    request = c.expect(API.OFFSET_COMMIT)
    assert (request.body.generation_id, request.body.member_id) == (5, "m-2")
    c.answer(request)
    assert newer.done
    c.machine.commit()
    c.does(API.END)


@VERSIONS
def test_offsets_of_more_than_a_coordinator_writes_at_once_go_in_several_requests(version):
    """It writes each as one batch, of 1 MiB by default; a larger one aborted the transaction."""
    c = Coordinator(version).written()
    many = {TopicPartition("t", n): OffsetAndMetadata(n + 1, "m" * 4_000) for n in range(300)}
    offsets = c.machine.add_offsets(many, MEMBER)
    if version < 2:
        c.does(API.ADD_OFFSETS)
    found, sizes = {}, []
    c.machine.commit()
    while (request := c.poll()) is not None and request.api is not API.END:
        if request.api is API.OFFSET_COMMIT:
            assert not offsets.done
            parts = request.body.topics[0].partitions
            found |= {TopicPartition("t", p.partition_index): p.committed_offset for p in parts}
            sizes.append(sum(len(p.committed_metadata) for p in parts))
        c.answer(request)
    assert found == {tp: offset.offset for tp, offset in many.items()}
    assert offsets.done
    assert max(sizes) < 2**20
    assert len(sizes) == 3, "no more than it takes"
    assert request.body.committed


def test_offsets_of_which_a_part_was_taken_are_not_given_again():
    """Under a newer membership that part would be committed with the transaction though it may be somebody else's by then."""
    c = Coordinator(2).written()
    many = {TopicPartition("t", n): OffsetAndMetadata(n + 1, "m" * 4_000) for n in range(300)}
    offsets = c.machine.add_offsets(many, MEMBER, again=True)
    c.does(API.OFFSET_COMMIT)
    c.does(API.OFFSET_COMMIT, 22)
    assert (offsets.done, offsets.refused, c.machine.state) == (False, None, STATE.ABORTABLE_ERROR)


@VERSIONS
def test_an_identity_that_somebody_else_got_is_taken_over_without_a_request(version):
    c = Coordinator(version)
    c.machine.adopt(9, 4)
    assert not c.machine.told  # the sender hasn't heard of it
    assert (c.poll(), c.identities, c.sent) == (None, [(9, 4)], [])
    assert (c.machine.told, c.machine.state) == (True, STATE.READY)
    c.machine.begin(version)
    c.machine.add_offsets(OFFSETS, MEMBER)
    if version < 2:
        request = c.expect(API.ADD_OFFSETS)
        assert (request.body.producer_id, request.body.producer_epoch) == (9, 4)
        c.answer(request)
    request = c.expect(API.OFFSET_COMMIT)
    assert (request.body.producer_id, request.body.producer_epoch) == (9, 4)
    with pytest.raises(errors.UsageError, match="adopt"):
        c.machine.adopt(9, 5)


# ---------------------------------------------------------------- verbs and their time


async def with_offsets():
    """The verbs of a producer in a transaction that has a group's offsets, and its coordinator."""
    own, c = verbs()
    c.initialized()
    await own.begin(1.0)
    own.machine.add_offsets(OFFSETS, MEMBER)
    c.does(API.OFFSET_COMMIT)
    return own, c


def verbs():
    """The verbs of a new producer, and its coordinator."""
    config = build(ProducerConfig, bootstrap_servers="b:1", transactional_id="copier")
    intake = RecordIntake(config, ACTIVE, lambda: 0.0, lambda batch: None, lambda: None)
    client = SimpleNamespace(transaction_version=lambda: 2)
    own = Transactions(config, client, intake, lambda: 0.5, nudge=lambda: None, dead=lambda: None)
    c = Coordinator(2)
    c.machine = own.machine
    return own, c


def end(c):
    """Answers EndTxn, which brings another epoch."""
    c.does(API.END)
    assert c.poll() is None


def test_a_verb_is_not_over_before_the_sender_knows_the_new_epoch():
    """Else what an AsyncProducer sends next, without a pause, would be under the one before, and end the producer."""

    async def main():
        own, c = verbs()
        with pytest.raises(errors.KafkaTimeoutError, match="init_transactions: not done"):
            await own.initialize(0.0)
        c.does(API.INIT_PRODUCER_ID)
        with pytest.raises(errors.KafkaTimeoutError, match="init_transactions: not done"):
            await own.initialize(0.0)
        assert c.poll() is None
        assert c.identities == [(7, 0)]
        await own.initialize(0.0)

    asyncio.run(main())


@pytest.mark.parametrize("late", [False, True], ids=["before it is left", "behind that"])
def test_a_commit_that_ends_when_its_time_is_over_keeps_nobody_from_the_next_transaction(late):
    async def main():
        own, c = await with_offsets()
        with pytest.raises(errors.KafkaTimeoutError, match="commit_transaction: not done"):
            await own.commit(0.0)
        if not late:
            end(c)
        assert not own.leave()
        if late:
            end(c)
        await own.begin(1.0, initialize=True)  # the next `with` block
        assert own.machine.state is STATE.IN_TRANSACTION

    asyncio.run(main())


def test_a_commit_that_ends_in_the_moment_in_which_its_time_is_over_has_ended():
    async def main():
        own, c = await with_offsets()
        asyncio.get_running_loop().call_soon(end, c)
        await own.commit(0.0)
        assert own.machine.committed

    asyncio.run(main())


def test_a_verb_that_waits_for_long_says_for_what(monkeypatch, caplog):
    """Offsets of a topic that is not there are sent again, as by Java's producer."""

    async def main():
        own, c = verbs()
        c.initialized()
        await own.begin(1.0)
        monkeypatch.setattr(tasks, "SILENT_S", 0.0)
        waiting = asyncio.ensure_future(own.send_offsets(OFFSETS, MEMBER, 60.0))
        await turns(1)
        c.does(API.OFFSET_COMMIT, UNKNOWN_TOPIC)
        await turns(3)
        waiting.cancel()

    asyncio.run(main())
    (line,) = caplog.messages
    assert line.startswith("send_offsets_to_transaction waits on, for up to 60 s; the last error was: ")
    assert "UNKNOWN_TOPIC_OR_PARTITION (3) in answer to TxnOffsetCommit for t-0 for group 'g'" in line


def test_a_record_that_was_not_taken_has_its_transaction_aborted_and_no_other_one():
    """Whatever comes first: the loop's turn, or the next call."""

    async def main():
        own, c = verbs()
        c.initialized()
        lost = errors.MessageTooLargeError("the record takes up to 2000000 bytes")
        own.lost(lost)  # outside of a transaction: of none
        await own.begin(1.0)
        own.lost(lost)
        with pytest.raises(errors.MessageTooLargeError):
            own.raise_failure()
        with pytest.raises(errors.MessageTooLargeError):
            await own.commit(1.0)
        assert c.machine.state is STATE.ABORTABLE_ERROR

    asyncio.run(main())
