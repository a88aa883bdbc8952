"""Metadata, and the requests that create, change and delete topics.

Theory of operation. Arrives: a request that names topics, by name or by id. Decided: for each of them a
description, a change of `ClusterState`, or an error of its own. All brokers share one state, so every broker
answers these requests, and a change is seen by all of them at once. A real cluster takes a moment; a test
that needs stale metadata makes it with a rule.

- Metadata describes topics as they are now. A partition without a leader is told with LEADER_NOT_AVAILABLE
  and its last epoch, a dead replica as offline. Topics that are asked for by id and unknown come first in the
  response, as in Kafka.
- Auto-creation answers UNKNOWN_TOPIC_OR_PARTITION first and creates the topic meanwhile: clients have to ask
  again, and a fake that answered at once would hide a client that doesn't.
- What names a topic twice in one request is refused with INVALID_REQUEST for that topic.
- `validate_only` makes all checks and changes nothing.
- Before release 2.8 there are no topic ids: they are told as zero, and clients must go by names.
- A deleted topic takes along what others keep of it: `on_delete` forgets its committed offsets. Long polls
  for its partitions are looked at again and end with an error. A topic of the same name that is created later
  has another id.
- DeleteRecords goes to the leader, moves the start of the log, and is refused for topics that are only
  compacted.

Bit fields of operations are those of a broker without an authorizer, which allows all of them.

Source: `KafkaApis.handleTopicMetadataRequest`, `ControllerApis`, `ReplicationControlManager`; KIP-4, KIP-107,
KIP-195, KIP-516.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from kafka_actors import errors
from kafka_actors.protocol import (
    ZERO_UUID,
    ApiKey,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka_actors.protocol.messages.create_partitions import (
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from kafka_actors.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
)
from kafka_actors.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsTopicResult,
)
from kafka_actors.protocol.messages.delete_topics import DeletableTopicResult
from kafka_actors.protocol.messages.metadata import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafka_actors.protocol.schema import Response

from .calls import BrokerCall
from .cluster_state import INTERNAL_TOPICS, ClusterState, FakeTopic, check_topic_name
from .error_answers import Refused, error_response
from .settings import TOPIC_CONFIGS, check_topic_configs

TOPIC_OPERATIONS = 3576
"""All operations on a topic, as a bit field: brokers without an authorizer allow them."""
CLUSTER_OPERATIONS = 8096
_NOT_REQUESTED = -0x80000000
_TOPIC_CONFIG, _BROKER_CONFIG, _DEFAULT_CONFIG = 1, 4, 5


class TopicHandlers:
    """Answers requests about topics. on_delete: called with a topic that was deleted."""

    def __init__(self, state: ClusterState, on_delete: Callable[[FakeTopic], object]) -> None:
        self._state = state
        self._on_delete = on_delete
        self.handlers: dict[ApiKey, Callable[[BrokerCall], Any]] = {
            ApiKey.METADATA: self._metadata,
            ApiKey.CREATE_TOPICS: self._create_topics,
            ApiKey.DELETE_TOPICS: self._delete_topics,
            ApiKey.CREATE_PARTITIONS: self._create_partitions,
            ApiKey.DELETE_RECORDS: self._delete_records,
        }

    def remove(self, name: str) -> None:
        """Deletes a topic with what is known of it."""
        self._on_delete(self._state.delete_topic(name))

    # ---------------------------------------------------------------- Metadata

    def _metadata(self, call: BrokerCall) -> MetadataResponse:
        """Describes the live brokers and the topics that are asked for.

        The controller is any live broker: under KRaft clients send to none in particular, and brokers pass on
        what is for it.
        """
        request: MetadataRequest = call.request
        state = self._state
        live = state.live
        operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else _NOT_REQUESTED
        everything = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else _NOT_REQUESTED
        return MetadataResponse(
            brokers=[MetadataResponseBroker(n.node_id, n.host, n.port, n.rack) for n in live],
            cluster_id=state.cluster_id,
            controller_id=state.random.choice(live).node_id if live else -1,
            topics=self._metadata_topics(request, call.version, operations),
            cluster_authorized_operations=everything,
        )

    def _metadata_topics(
        self, request: MetadataRequest, version: int, operations: int
    ) -> list[MetadataResponseTopic]:
        """Describes topics by id, by name, or all.

        No topics means all in version 0 and none from 1 on, where null means all. A name is created on the way
        only if both the request and the brokers allow it.
        """
        state = self._state
        if request.topics is None or (version == 0 and not request.topics):
            return [self._topic(topic, operations) for topic in state.topics.values()]
        ids = [t.topic_id for t in request.topics if t.topic_id != ZERO_UUID]
        if ids:
            found = {topic_id: state.topic_by_id(topic_id) for topic_id in ids}
            code = errors.UnknownTopicIdError.code
            unknown = [
                MetadataResponseTopic(code, None, i, topic_authorized_operations=_NOT_REQUESTED)
                for i, t in found.items()
                if t is None
            ]
            return unknown + [self._topic(t, operations) for t in found.values() if t is not None]
        names = dict.fromkeys(t.name or "" for t in request.topics)
        known = [self._topic(state.topics[name], operations) for name in names if name in state.topics]
        creates = request.allow_auto_topic_creation and state.settings.auto_create_topics_enable
        missing = [self._missing(n, creates, operations) for n in names if n not in state.topics]
        return known + missing

    def _missing(self, name: str, creates: bool, operations: int) -> MetadataResponseTopic:
        """Answers for an unknown topic. One that is created for it is there with the next request, as on a real broker."""
        try:
            check_topic_name(name)
            if creates:
                settings = self._state.settings
                placed = self._state.place(settings.num_partitions, settings.default_replication_factor)
                self._state.create_topic(name, placed)
            code = errors.UnknownTopicOrPartitionError.code
        except Refused as refused:
            code = refused.code
        internal = name in INTERNAL_TOPICS
        return MetadataResponseTopic(code, name, is_internal=internal, topic_authorized_operations=operations)

    def _topic(self, topic: FakeTopic, operations: int) -> MetadataResponseTopic:
        """Describes one topic.

        All replicas share one log, so those that are alive are in sync, and the others are offline.
        """
        partitions = []
        for partition in topic.partitions:
            live = self._state.isr(partition)
            partitions.append(
                MetadataResponsePartition(
                    error_code=0 if partition.leader >= 0 else errors.LeaderNotAvailableError.code,
                    partition_index=partition.index,
                    leader_id=partition.leader,
                    leader_epoch=partition.leader_epoch,
                    replica_nodes=list(partition.replicas),
                    isr_nodes=live,
                    offline_replicas=[r for r in partition.replicas if r not in live],
                )
            )
        # Kafka has topic ids from 2.8 on.
        topic_id = topic.topic_id if self._state.release >= (2, 8) else ZERO_UUID
        return MetadataResponseTopic(
            0, topic.name, topic_id, topic.name in INTERNAL_TOPICS, partitions, operations
        )

    # ---------------------------------------------------------------- CreateTopics

    def _create_topics(self, call: BrokerCall) -> CreateTopicsResponse:
        """Creates each topic that is named once.

        One that is named twice is refused, and its answer stands at the end, as in
        `ControllerApis.createTopics`.
        """
        request: CreateTopicsRequest = call.request
        counts = Counter(topic.name for topic in request.topics)
        results = [
            self._create(topic, request.validate_only) for topic in request.topics if counts[topic.name] == 1
        ]
        twice = [
            CreatableTopicResult(
                name=name,
                error_code=errors.InvalidRequestError.code,
                error_message="Duplicate topic name.",
            )
            for name, count in counts.items()
            if count > 1
        ]
        return CreateTopicsResponse(topics=results + twice)

    def _create(self, topic: CreatableTopic, validate_only: bool) -> CreatableTopicResult:
        """Creates one topic, or only checks it.

        The checks come in Kafka's order, of which clients see the first that fails: name, settings, replicas.
        """
        configs = {config.name: config.value for config in topic.configs}
        try:
            self._state.check_new_name(topic.name)
            check_topic_configs(configs)
            assignment = self._assignment(topic)
        except Refused as refused:
            return CreatableTopicResult(
                name=topic.name, error_code=refused.code, error_message=refused.text, configs=[]
            )
        values = {name: value for name, value in configs.items() if value is not None}
        topic_id = self._state.new_uuid()
        if not validate_only:
            topic_id = self._state.create_topic(topic.name, assignment, values).topic_id
        return CreatableTopicResult(
            name=topic.name,
            topic_id=topic_id,
            error_message=None,
            num_partitions=len(assignment),
            replication_factor=len(assignment[0]),
            configs=[
                CreatableTopicConfigs(
                    name,
                    values.get(name, default),
                    False,
                    _TOPIC_CONFIG
                    if name in values
                    else (_DEFAULT_CONFIG if default == TOPIC_CONFIGS[name] else _BROKER_CONFIG),
                )
                for name, default in {**TOPIC_CONFIGS, **self._state.settings.topic_defaults()}.items()
            ],
        )

    def _assignment(self, topic: CreatableTopic) -> list[list[int]]:
        """Returns the replicas of each partition: those that the client chose, or as many as it asks for, in
        turn over the live brokers. -1 stands for the brokers' own number. Raises `Refused`.
        """
        settings = self._state.settings
        if topic.assignments:
            if topic.replication_factor != -1 or topic.num_partitions != -1:
                raise Refused(errors.InvalidRequestError, "an assignment excludes other numbers")
            chosen = {a.partition_index: list(a.broker_ids) for a in topic.assignments}
            if sorted(chosen) != list(range(len(topic.assignments))):
                raise Refused(errors.InvalidReplicaAssignmentError, "partitions should be 0, 1, 2 ...")
            found = [chosen[index] for index in range(len(chosen))]
            self.check_replicas(found, len(found[0]))
            return found
        count, factor = topic.num_partitions, topic.replication_factor
        return self._state.place(
            settings.num_partitions if count == -1 else count,
            settings.default_replication_factor if factor == -1 else factor,
        )

    def check_replicas(self, assignment: Sequence[Sequence[int]], factor: int) -> None:
        """Raises `Refused` for replicas that are no brokers or none that is alive, are named twice, or are more or fewer than those of
        other partitions.
        """
        live = {node.node_id for node in self._state.live}
        for replicas in assignment:
            known = live.intersection(replicas) and all(r in self._state.nodes for r in replicas)
            if not known or len(set(replicas)) != len(replicas) or len(replicas) != factor:
                raise Refused(
                    errors.InvalidReplicaAssignmentError, f"the replicas {replicas} are not possible"
                )

    # ---------------------------------------------------------------- DeleteTopics

    def _delete_topics(self, call: BrokerCall) -> Response:
        """Deletes topics by name, or from version 6 on by id (KIP-516), where the brokers let topics be deleted."""
        request: DeleteTopicsRequest = call.request
        if not self._state.settings.delete_topic_enable:
            error = errors.TopicDeletionDisabledError if call.version >= 3 else errors.InvalidRequestError
            return error_response(request, call.version, error.code)
        wanted = [(name, ZERO_UUID) for name in request.topic_names]
        wanted += [(topic.name or "", topic.topic_id) for topic in request.topics]
        counts = Counter(wanted)
        return DeleteTopicsResponse(
            responses=[self._delete(name, topic_id, count) for (name, topic_id), count in counts.items()]
        )

    def _delete(self, name: str, topic_id: UUID, count: int) -> DeletableTopicResult:
        """Deletes one topic.

        Name and id together, neither, and one that is named twice are mistakes of the client.
        """
        if (bool(name) == (topic_id != ZERO_UUID)) or count > 1:
            code = errors.InvalidRequestError.code
            return DeletableTopicResult(name or None, topic_id, code, "name or id, and once")
        topic = self._state.topics.get(name) if name else self._state.topic_by_id(topic_id)
        if topic is None:
            error = errors.UnknownTopicOrPartitionError if name else errors.UnknownTopicIdError
            return DeletableTopicResult(name or None, topic_id, error.code, "This server does not host it.")
        self.remove(topic.name)
        return DeletableTopicResult(topic.name, topic.topic_id)

    # ---------------------------------------------------------------- CreatePartitions, DeleteRecords

    def _create_partitions(self, call: BrokerCall) -> CreatePartitionsResponse:
        """Adds partitions to topics, and answers for each topic alone. A topic that is named twice is refused."""
        request: CreatePartitionsRequest = call.request
        counts = Counter(topic.name for topic in request.topics)
        results = []
        for topic in {t.name: t for t in request.topics}.values():
            code, text = 0, None
            try:
                if counts[topic.name] > 1:
                    raise Refused(errors.InvalidRequestError, "Duplicate topic name.")
                self._extend(topic, request.validate_only)
            except Refused as refused:
                code, text = refused.code, refused.text
            results.append(CreatePartitionsTopicResult(topic.name, code, text))
        return CreatePartitionsResponse(results=results)

    def _extend(self, wanted: CreatePartitionsTopic, validate_only: bool) -> None:
        """Adds the partitions that are missing to the wanted number.

        Replicas are as many as partition 0 has; a client that chooses them chooses for the new partitions only.
        Raises `Refused`.
        """
        topic = self._state.topics.get(wanted.name)
        if topic is None:
            raise Refused(errors.UnknownTopicOrPartitionError, "This server does not host it.")
        more = wanted.count - len(topic.partitions)
        if more <= 0:
            raise Refused(errors.InvalidPartitionsError, f"The topic has {len(topic.partitions)} partitions.")
        factor = len(topic.partitions[0].replicas)
        if wanted.assignments is None:
            assignment = self._state.place(more, factor)
        else:
            assignment = [list(a.broker_ids) for a in wanted.assignments]
            if len(assignment) != more:
                raise Refused(errors.InvalidReplicaAssignmentError, f"{more} assignments are needed")
            self.check_replicas(assignment, factor)
        if not validate_only:
            self._state.add_partitions(topic, assignment)

    def _delete_records(self, call: BrokerCall) -> DeleteRecordsResponse:
        """Moves the starts of logs (KIP-107), and answers with the new start of each."""
        request: DeleteRecordsRequest = call.request
        topics = []
        for topic in request.topics:
            results = []
            for wanted in topic.partitions:
                low, code = -1, 0
                try:
                    low = self._delete_before(call.node_id, topic.name, wanted.partition_index, wanted.offset)
                except Refused as refused:
                    code = refused.code
                results.append(DeleteRecordsPartitionResult(wanted.partition_index, low, code))
            topics.append(DeleteRecordsTopicResult(topic.name, results))
        return DeleteRecordsResponse(topics=topics)

    def _delete_before(self, node_id: int, name: str, index: int, offset: int) -> int:
        """Moves the start of one log; -1 stands for its end.

        Records up to the high watermark can go, and here that is the end. Raises `Refused`.
        """
        partition = self._state.led_by(node_id, name, index)
        if "delete" not in self._state.topics[name].configs.get("cleanup.policy", "delete"):
            raise Refused(errors.PolicyViolationError)
        log = partition.log
        if offset == -1:
            offset = log.end_offset
        if offset < 0 or offset > log.end_offset:
            raise Refused(errors.OffsetOutOfRangeError)
        log.delete_before(offset)
        self._state.changed.add((name, index))
        return log.start_offset
