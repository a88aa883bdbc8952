"""Import paths that users have from the documentation: those of the table lead where they led, and no page names one that isn't there.

The table is written out here, not derived. A name that leaves it breaks somebody's program: that is a change for a user, with
a line in the CHANGELOG.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pages.blocks import ROOT, blocks_of

PUBLIC = {
    "kafka_actors": """
        Admin AsyncAdmin AsyncConsumer AsyncProducer Autoscale Backoff Consumer ConsumerGroupMetadata ConsumerRebalanceListener Job JobFailed
        JobStatus KafkaActorsError KafkaError KafkaSink Message NewTopic OffsetAndMetadata ParquetSink Pipeline ProcessError Producer
        RecordMetadata RetryTopics RunningJob SchemaRegistry TopicPartition __version__ errors ray schemas
    """,
    "kafka_actors.admin": """
        AclBinding AclBindingFilter Admin AlterConfigOp AsyncAdmin ClusterDescription ConfigEntry ConfigResource
        ConfigSynonym EARLIEST GroupDescription GroupListing LATEST ListedOffset
        MAX_TIMESTAMP MemberDescription NewPartitions NewTopic OffsetReset OffsetTarget PartitionDescription PartitionLag
        TopicDescription TopicListing
    """,
    "kafka_actors.registry": "SchemaRegistry",
    "kafka_actors.schemas": """
        AvroDecoder AvroEncoder DeserializationError ProtobufDecoder ProtobufEncoder Reference Schema SchemaNotFoundError
        SchemaRegistryError SchemaRegistryUnavailableError SerializationError framed
    """,
    "kafka_actors.backfill": "Backfill HandoverPlan PlannedPartition PlannedTopic",
    "kafka_actors.cluster": """
        BrokerMetadata Cluster ClusterMetadata ClusterSnapshot Future PartitionMetadata SubscriptionMode
        SubscriptionState TopicMetadata
    """,
    "kafka_actors.consumer": "AsyncConsumer Consumer ConsumerRebalanceListener Message messages_of",
    "kafka_actors.errors": """
        AuthenticationError AuthorizationError BatchTooLargeError BrokerIdNotRegisteredError
        BrokerNotAvailableError ClientError ClusterAuthorizationFailedError ConcurrentTransactionsError
        ConfigError ConnectionFailedError CoordinatorLoadInProgressError CoordinatorNotAvailableError
        CorrelationIdError CorruptMessageError CorruptRecordBatchError DataLossError DecodeError
        DelegationTokenAuthDisabledError DelegationTokenAuthorizationFailedError DelegationTokenExpiredError
        DelegationTokenNotFoundError DelegationTokenOwnerMismatchError DelegationTokenRequestNotAllowedError
        DeliveryTimeoutError DisconnectedError DuplicateBrokerRegistrationError DuplicateResourceError
        DuplicateSequenceNumberError DuplicateVoterError ElectionNotNeededError
        EligibleLeadersNotAvailableError EncodeError FeatureUpdateFailedError FencedInstanceIdError
        FencedLeaderEpochError FencedMemberEpochError FencedStateEpochError FetchOffsetOutOfRangeError
        FetchSessionIdNotFoundError FetchSessionTopicIdError GroupAuthorizationFailedError
        GroupIdNotFoundError GroupMaxSizeReachedError GroupSubscribedToTopicError HandoverError
        IllegalGenerationError IllegalSaslStateError InconsistentClusterIdError
        InconsistentGroupProtocolError InconsistentTopicIdError InconsistentVoterSetError
        IneligibleReplicaError InvalidCommitOffsetSizeError InvalidConfigError InvalidFetchSessionEpochError
        InvalidFetchSizeError InvalidGroupIdError InvalidPartitionsError InvalidPrincipalTypeError
        InvalidProducerEpochError InvalidProducerIdMappingError InvalidRecordError InvalidRecordStateError
        InvalidRegistrationError InvalidRegularExpressionError InvalidReplicaAssignmentError
        InvalidReplicationFactorError InvalidRequestError InvalidRequiredAcksError
        InvalidSessionTimeoutError InvalidShareSessionEpochError InvalidTimestampError InvalidTopicError
        InvalidTransactionTimeoutError InvalidTxnStateError InvalidUpdateVersionError InvalidVoterKeyError
        JobError JobFailed JobNameInUseError KafkaActorsError KafkaError KafkaStorageError KafkaTimeoutError
        LeaderNotAvailableError ListenerNotFoundError LogDirNotFoundError LogTruncationError
        MalformedTimestampError MemberIdRequiredError MessageTooLargeError MismatchedEndpointTypeError
        NetworkError NewLeaderElectedError NoBrokersAvailable NoBrokersError NoOffsetForPartitionError
        NoReassignmentInProgressError NodeNotReadyError NonEmptyGroupError NotControllerError
        NotCoordinatorError NotEnoughReplicasAfterAppendError NotEnoughReplicasError
        NotLeaderOrFollowerError OffsetMetadataTooLargeError OffsetMovedToTieredStorageError
        OffsetNotAvailableError OffsetOutOfRangeError OffsetResetRequiredError OperationNotAttemptedError
        OutOfOrderSequenceNumberError PolicyViolationError PositionOutOfRangeError
        PreferredLeaderNotAvailableError PrincipalDeserializationFailureError ProcessError
        ProducerFencedError ProtocolError ReassignmentInProgressError RebalanceInProgressError
        RebootstrapRequiredError RecordError RecordListTooLargeError RemoteCauseError
        ReplicaNotAvailableError RequestTimedOutError ResourceNotFoundError SaslAuthenticationFailedError
        SaslError SecurityDisabledError ShareSessionLimitReachedError ShareSessionNotFoundError SinkError
        SnapshotNotFoundError SslAuthenticationError StageError StaleBrokerEpochError
        StaleControllerEpochError StaleMemberEpochError StartLostError StartTimeoutError
        StreamsInvalidTopologyEpochError StreamsInvalidTopologyError StreamsTopologyFencedError
        TelemetryTooLargeError ThrottlingQuotaExceededError TopicAlreadyExistsError
        TopicAuthorizationFailedError TopicDeletionDisabledError TopicRecreatedError
        TransactionAbortableError TransactionCoordinatorFencedError TransactionalIdAuthorizationFailedError
        TransactionalIdNotFoundError UnacceptableCredentialError UndeliveredError UnknownControllerIdError
        UnknownHostError UnknownLeaderEpochError UnknownMagicError UnknownMemberIdError
        UnknownProducerIdError UnknownServerError UnknownSubscriptionIdError UnknownTopicIdError
        UnknownTopicOrPartitionError UnrecognizedBrokerVersion UnreleasedInstanceIdError
        UnstableOffsetCommitError UnsupportedAssignorError UnsupportedCompressionError
        UnsupportedCompressionTypeError UnsupportedEndpointTypeError UnsupportedForMessageFormatError
        UnsupportedSaslMechanismError UnsupportedVersionError UsageError VoterNotFoundError WorkerDiedError
        error_for_code for_code kind_of raise_for_code
    """,
    "kafka_actors.events": """
        BadBatchSkipped CoordinatorChanged DrainForced Event EventSink NoCommittedOffset NoRoomForWorkers
        NodeAnswers NodeSilent OffsetReset PartitionMoved PartitionNotRead PartitionStalled
        PartitionsAssigned PartitionsLost PartitionsRevoked PatternMatchesNothing Rebalanced
        RecordsDeadLettered RecordsRetriedLater RecordsSkipped Rejoining TransactionAborted WorkersChanged fields_of in_words
        log_event
    """,
    "kafka_actors.identity": "AwsMsk Azure Google",
    "kafka_actors.metrics": "MetricName Metrics Sensor Stat",
    "kafka_actors.net": """
        ApiVersionTable Broker Connection ConnectionOpener EARLIEST EpochEnd FetchSocket IoThread
        KafkaClient LATEST ListedOffset MemberAssignment OFFSETS_CHANNEL OffsetLookups
    """,
    "kafka_actors.options": "ClientConfig ConsumerConfig JobConfig ProducerConfig",
    "kafka_actors.producer": """
        AsyncProducer BatchFuture BatchMetadata OffsetRange Producer RecordFuture RecordMetadata
    """,
    "kafka_actors.protocol": """
        AddOffsetsToTxnRequest AddOffsetsToTxnResponse AddPartitionsToTxnRequest AddPartitionsToTxnResponse
        ApiKey ApiVersionsRequest ApiVersionsResponse ConsumerGroupDescribeRequest
        ConsumerGroupDescribeResponse ConsumerGroupHeartbeatRequest ConsumerGroupHeartbeatResponse
        ConsumerProtocolAssignment ConsumerProtocolSubscription CreatePartitionsRequest
        CreatePartitionsResponse CreateTopicsRequest CreateTopicsResponse DeleteGroupsRequest
        DeleteGroupsResponse DeleteRecordsRequest DeleteRecordsResponse DeleteTopicsRequest
        DeleteTopicsResponse DescribeClusterRequest DescribeClusterResponse DescribeConfigsRequest
        DescribeConfigsResponse DescribeGroupsRequest DescribeGroupsResponse EndTxnRequest EndTxnResponse
        FetchRequest FetchResponse FindCoordinatorRequest FindCoordinatorResponse HeartbeatRequest
        HeartbeatResponse InitProducerIdRequest InitProducerIdResponse JoinGroupRequest JoinGroupResponse
        LeaveGroupRequest LeaveGroupResponse ListGroupsRequest ListGroupsResponse ListOffsetsRequest
        ListOffsetsResponse Message MetadataRequest MetadataResponse OffsetAndMetadata OffsetCommitRequest
        OffsetCommitResponse OffsetDeleteRequest OffsetDeleteResponse OffsetFetchRequest OffsetFetchResponse
        OffsetForLeaderEpochRequest OffsetForLeaderEpochResponse ProduceRequest ProduceResponse Request
        RequestHeader Response ResponseHeader SaslAuthenticateRequest SaslAuthenticateResponse
        SaslHandshakeRequest SaslHandshakeResponse SyncGroupRequest SyncGroupResponse TopicPartition
        TxnOffsetCommitRequest TxnOffsetCommitResponse ZERO_UUID decode decode_api_versions
        decode_consumer_protocol decode_header decode_message decode_prefix encode encode_consumer_protocol
        encode_header encode_into frame header_version message_class peek_request response_frame
    """,
    "kafka_actors.records": "Chunk Decoder KERNEL Limits SCHEMA decode encode next_offset",
    "kafka_actors.sinks": """
        DeadLetters KafkaSink KafkaWriter Origin ParquetSink ParquetWriter Sink UserSink Writer as_sink
        close_all origin_of
    """,
    "kafka_actors.telemetry": "Settings configure flush",
    "kafka_actors.testing": """
        BENCHMARK_JVM CONTROLLER_ID DEFAULT_VERSION Distribution FakeKafka GroupDescription GroupMember
        KafkaCluster KafkaUnavailable NodeFailed TEST_JVM
    """,
    "kafka_actors.testing.fake_kafka": """
        AnswerWith AnswerWithError BrokerCall ChangeResponse Delay DropConnection FakeKafka Hold HoldResponse LoseResponse Repeat
        TakenRequests Throttle
    """,
    "kafka_actors.protocol.messages": """
        add_offsets_to_txn add_partitions_to_txn api_versions consumer_group_describe
        consumer_group_heartbeat consumer_protocol_assignment consumer_protocol_subscription
        create_partitions create_topics delete_groups delete_records delete_topics describe_cluster
        describe_configs describe_groups end_txn fetch find_coordinator headers heartbeat init_producer_id
        join_group leave_group list_groups list_offsets metadata offset_commit offset_delete offset_fetch
        offset_for_leader_epoch produce sasl_authenticate sasl_handshake sync_group txn_offset_commit
    """,
    "kafka_actors.telemetry.instruments": "INSTRUMENTS",
    "kafka_actors.testing.plugin": """
        fake_kafka group_id kafka_cluster kafka_cluster_3 kafka_topic mock_cluster produce started
    """,
    "kafka_actors.testing.produce": "Produce",
    "assignors": """
        Assignment Assignor CooperativeStickyAssignor Member Racks RangeAssignor RoundRobinAssignor
        StickyAssignor TopicPartition available cooperative_adjust current_owned get
    """,
}
"""Module → the names that users import from it."""
SHOWN = {
    "kafka_actors.job": "WorkerStatus",
    "kafka_actors.job.machines.health": "Health",
    "kafka_actors.job.machines.timeline": "TimelineEntry",
    "kafka_actors.job.status": "ActorStatus GroupState JobTotals PartitionStatus ScalingStatus WindowStatus WorkersChange",
    "kafka_actors.coordinator": """
        AutoCommitTask BaseCoordinator CommitCallback ConsumerCoordinator ConsumerCoordinatorMetrics
        GroupBroker GroupClient GroupCoordinatorMetrics Heartbeat HeartbeatTask IgnoreRebalances MemberState
        CommittedStart RebalanceListener default_offset_commit_callback fetch_offsets_of_groups
    """,
    "kafka_actors.net": """
        BrokerChannels PartitionFetchRequest PartitionOffsetCommitRequest PartitionOffsetFetchRequest
        PartitionOffsetRequest
    """,
    "kafka_actors.spark": "OnSpark transactional",
    "kafka_actors.ray": "OnRay",
}
"""Reference pages show these where they happen to be: results, and parts that programs get from the names above. When one moves,
its page moves with it; nothing else may need the old path."""


@cache
def found(path: str) -> Any:
    """A module, or what is in one: `kafka_actors.admin.Admin.lag`. Raises `ImportError` or `AttributeError`."""
    name, _, rest = path.partition(".")
    thing: Any = importlib.import_module(name)
    for part in rest.split(".") if rest else ():
        name = f"{name}.{part}"
        if isinstance(thing, ModuleType) and not hasattr(thing, part):
            thing = importlib.import_module(name)
        else:
            thing = getattr(thing, part)
    return thing


def problem_of(path: str) -> str | None:
    try:
        found(path)
    except (ImportError, AttributeError) as error:
        return f"{path}: {error}"
    return None


TABLE = [(module, name) for table in (PUBLIC, SHOWN) for module in table for name in table[module].split()]


@pytest.mark.parametrize("module", sorted({module for module, _ in TABLE}))
def test_what_the_table_has_can_be_imported(module: str) -> None:
    names = [name for path, name in TABLE if path == module]
    assert [problem for name in names if (problem := problem_of(f"{module}.{name}"))] == []


def test_a_path_that_is_not_there_is_a_problem() -> None:
    assert problem_of("kafka_actors.admin.Admin.lag") is None
    for wrong in (
        "kafka_actors.no_such",
        "kafka_actors.admin.no_such",
        "kafka_actors.Job.no_such",
        "no_such",
    ):
        assert problem_of(wrong) is not None


# ---------------------------------------------------------------- what is documented is in the table

DIRECTIVE = re.compile(r"^::: (\S+)$", re.MULTILINE)


def test_the_reference_pages_show_nothing_that_is_not_in_the_table() -> None:
    pages = sorted((ROOT / "docs").rglob("*.md"))
    shown = [path for page in pages for path in DIRECTIVE.findall(page.read_text())]
    modules = {path for path in shown if isinstance(found(path), ModuleType)}
    known = {f"{module}.{name}" for module, name in TABLE}
    assert set(shown) - modules - known == set(), "a page shows what this test's table doesn't have"
    assert modules == {
        "kafka_actors.errors",
        "kafka_actors.events",
        "kafka_actors.metrics",
        "kafka_actors.schemas.errors",
        "kafka_actors.testing.plugin",
    }


# ---------------------------------------------------------------- what is written is there

WRITTEN = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "mkdocs.yml",
    ROOT / "Dockerfile",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*.*")),
    *sorted(
        path for path in (ROOT / "helm").rglob("*") if path.suffix in {".md", ".yaml", ".tpl", ".txt", ".py"}
    ),
]
DOTTED = re.compile(r"(?<![\w./-])kafka_actors(?:\.[A-Za-z_]\w*)+")
SHORT = re.compile(r"(?<![\w.])ka((?:\.[A-Za-z_]\w*)+)")
IMPORT = re.compile(
    r"^[ \t>]*((?:from (?:kafka_actors|assignors)[\w.]* import (?:\([^)]*\)|[^\n(#]+))|(?:import (?:kafka_actors|assignors)[^\n;#]*))",
    re.MULTILINE,
)
OURS = ("kafka_actors", "assignors")
NO_PATHS = ("kafka_actors.error.", "kafka_actors.assignors", "kafka_actors.engines")
"""Headers of dead letters, and groups of entry points."""


def text_of(path: Path) -> str:
    text = path.read_text()
    if path.suffix != ".ipynb":
        return text
    return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])


def paths_in(text: str) -> Iterator[str]:
    """All that a text names of this library."""
    yield from (path for path in DOTTED.findall(text))
    yield from (f"kafka_actors{rest}" for rest in SHORT.findall(text))
    for statement in IMPORT.findall(text):
        for node in ast.parse(statement.strip()).body:
            if isinstance(node, ast.ImportFrom):
                yield from (f"{node.module}.{each.name}" for each in node.names)
            elif isinstance(node, ast.Import):
                yield from (each.name for each in node.names if each.name.startswith(OURS))


def is_metric(path: str) -> bool:
    """A metric's name, or the beginning that several share."""
    return any(
        f"{name}.".startswith(f"{path}.") for name in found("kafka_actors.telemetry.instruments.BY_NAME")
    )


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_text_for_users_names_is_there(path: Path) -> None:
    named = sorted({each for each in paths_in(text_of(path)) if not each.startswith(NO_PATHS)})
    assert [problem for each in named if not is_metric(each) and (problem := problem_of(each))] == []


def test_how_names_are_found_in_a_text() -> None:
    text = """
import kafka_actors as ka
>>> from kafka_actors.admin import NewTopic, Admin as A  # two
from assignors import (
    get,
)
`ka.Job` and `kafka_actors.errors.ConfigError`, kafka.group.id, kafka_actors/spark
"""
    assert sorted(paths_in(text)) == [
        "assignors.get",
        "kafka_actors",
        "kafka_actors.Job",
        "kafka_actors.admin",
        "kafka_actors.admin.Admin",
        "kafka_actors.admin.NewTopic",
        "kafka_actors.errors.ConfigError",
    ]


@pytest.mark.parametrize(
    "page",
    [path for path in WRITTEN if path.suffix == ".md" and "development" not in path.parts],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_what_a_page_imports_is_public(page: Path) -> None:
    """A page for users imports only what the table promises to keep; the pages for maintainers import what they explain."""
    public = {f"{module}.{name}" for module in PUBLIC for name in PUBLIC[module].split()} | {*PUBLIC}
    code = "\n".join(block.code for block in blocks_of(page) if block.language in ("python", "pycon"))
    imported = {path for statement in IMPORT.findall(code) for path in paths_in(statement)}
    assert imported - public == set(), "an import that this test's table doesn't have"


def test_who_looks_for_a_reader_of_ray_data_is_told_what_there_is_instead() -> None:
    """`read_kafka` is the name that Ray Data's readers have; what the line names is there."""
    import kafka_actors as ka

    with pytest.raises(AttributeError) as caught:
        ka.ray.read_kafka  # noqa: B018
    said = str(caught.value)
    assert "\n" not in said
    assert said.startswith("kafka_actors.ray has no read_kafka, which would make a Ray Dataset: ")
    for named in ("Pipeline.read_kafka", ".on_ray()", "Job", ".write_parquet", "ray.data.read_parquet"):
        assert named in said
    assert {"read_kafka", "on_ray", "write_parquet"} <= set(dir(ka.Pipeline))
    assert not hasattr(ka.ray, "read_kafka")
    with pytest.raises(AttributeError, match="read_kafkas"):
        ka.ray.read_kafkas  # noqa: B018
