"""`MockCluster`: librdkafka's mock brokers inside this process, from confluent-kafka's wheel.

They speak the protocol on real sockets and start in milliseconds, without Java. They differ from real brokers:

* a partition keeps its last 5 MB or 100,000 batches; older ones are dropped silently, and the low watermark rises;
* CreateTopics is missing: an unknown topic is created with 4 partitions when it is requested; `create_topic` here uses
  the C API;
* there is no static membership, there are no fetch sessions, and no transactions that hide records; JoinGroup 6 is
  announced, but its rules are not kept; a long poll does not return when records are produced.

So only a real cluster shows what is right; this one is for the demo and for a first try of a pipeline.
"""

from __future__ import annotations

import ctypes
from types import TracebackType

_PRODUCER = 0
_ERROR_TEXT = 512


class MockCluster:
    """Mock brokers on ports of this machine, which end with `stop`, the `with` block or the process.

    Needs the `testing` extra. Raises `RuntimeError` if the wheel's librdkafka has no mock cluster.
    """

    def __init__(self, brokers: int = 3) -> None:
        if brokers < 1:
            raise ValueError(f"brokers must be at least 1, not {brokers}")
        self.broker_ids = tuple(range(1, brokers + 1))
        self._library: ctypes.CDLL | None = None
        self._client: int | None = None
        self._cluster: int | None = None
        self._bootstrap = ""

    def start(self) -> MockCluster:
        """Starts the brokers; returns itself."""
        if self._cluster is not None:
            return self
        self._library = library = _librdkafka()
        self._client = _new_client(library, len(self.broker_ids))
        self._cluster = library.rd_kafka_handle_mock_cluster(self._client)
        if not self._cluster:
            self.stop()
            raise RuntimeError("librdkafka started no mock cluster")
        self._bootstrap = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        return self

    def stop(self) -> None:
        """Ends the brokers and closes their sockets."""
        if self._library is not None and self._client is not None:
            self._library.rd_kafka_destroy(self._client)
        self._client = self._cluster = None

    def __enter__(self) -> MockCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, separated by commas."""
        self._running()
        return self._bootstrap

    def create_topic(self, name: str, partitions: int = 4, replication_factor: int = 1) -> str:
        """Creates a topic and returns its name. Raises `RuntimeError` if librdkafka refuses."""
        library, cluster = self._running()
        code = library.rd_kafka_mock_topic_create(cluster, name.encode(), partitions, replication_factor)
        _check(library, code, f"create topic {name}")
        return name

    def set_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Moves a partition's leadership to another broker."""
        library, cluster = self._running()
        code = library.rd_kafka_mock_partition_set_leader(cluster, topic.encode(), partition, broker_id)
        _check(library, code, f"make {broker_id} the leader of {topic}-{partition}")

    def set_coordinator(self, group: str, broker_id: int) -> None:
        """Makes a broker the coordinator of `group`."""
        library, cluster = self._running()
        code = library.rd_kafka_mock_coordinator_set(cluster, b"group", group.encode(), broker_id)
        _check(library, code, f"make {broker_id} the coordinator of {group}")

    def set_down(self, broker_id: int) -> None:
        """Closes the broker's connections and accepts no new ones."""
        library, cluster = self._running()
        _check(
            library,
            library.rd_kafka_mock_broker_set_down(cluster, broker_id),
            f"take broker {broker_id} down",
        )

    def set_up(self, broker_id: int) -> None:
        """Lets the broker accept connections again."""
        library, cluster = self._running()
        _check(
            library, library.rd_kafka_mock_broker_set_up(cluster, broker_id), f"bring broker {broker_id} up"
        )

    def push_errors(self, api_key: int, *codes: int) -> None:
        """Makes the brokers answer the next requests with `api_key` with these error codes, one code for each request."""
        library, cluster = self._running()
        array = (ctypes.c_int * len(codes))(*codes)
        library.rd_kafka_mock_push_request_errors_array(cluster, api_key, len(codes), array)

    def _running(self) -> tuple[ctypes.CDLL, int]:
        if self._library is None or self._cluster is None:
            raise RuntimeError("the mock cluster is not running: call start(), or use it in a with statement")
        return self._library, self._cluster


def _new_client(library: ctypes.CDLL, brokers: int) -> int:
    """Creates a producer of the C API, which only owns the mock brokers."""
    conf = library.rd_kafka_conf_new()
    text = ctypes.create_string_buffer(_ERROR_TEXT)
    for key, value in ((b"test.mock.num.brokers", str(brokers).encode()), (b"log_level", b"0")):
        if library.rd_kafka_conf_set(conf, key, value, text, _ERROR_TEXT) != 0:
            library.rd_kafka_conf_destroy(conf)
            raise RuntimeError(f"librdkafka refused {key.decode()}: {text.value.decode()}")
    client: int | None = library.rd_kafka_new(_PRODUCER, conf, text, _ERROR_TEXT)
    if not client:
        library.rd_kafka_conf_destroy(conf)
        raise RuntimeError(f"librdkafka could not start its mock cluster: {text.value.decode()}")
    return client


def _check(library: ctypes.CDLL, code: int, what: str) -> None:
    if code != 0:
        raise RuntimeError(f"the mock cluster could not {what}: {library.rd_kafka_err2str(code).decode()}")


def _librdkafka() -> ctypes.CDLL:
    """Loads the wheel's librdkafka through the extension module that is linked with it: the library's own file name has a hash."""
    from confluent_kafka import cimpl

    library = ctypes.CDLL(cimpl.__file__)
    handle, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    int32, size = ctypes.c_int32, ctypes.c_size_t
    signatures = {
        "rd_kafka_conf_new": (handle, []),
        "rd_kafka_conf_set": (number, [handle, text, text, text, size]),
        "rd_kafka_conf_destroy": (None, [handle]),
        "rd_kafka_new": (handle, [number, handle, text, size]),
        "rd_kafka_destroy": (None, [handle]),
        "rd_kafka_err2str": (text, [number]),
        "rd_kafka_handle_mock_cluster": (handle, [handle]),
        "rd_kafka_mock_cluster_bootstraps": (text, [handle]),
        "rd_kafka_mock_topic_create": (number, [handle, text, number, number]),
        "rd_kafka_mock_partition_set_leader": (number, [handle, text, int32, int32]),
        "rd_kafka_mock_coordinator_set": (number, [handle, text, text, int32]),
        "rd_kafka_mock_broker_set_down": (number, [handle, int32]),
        "rd_kafka_mock_broker_set_up": (number, [handle, int32]),
        "rd_kafka_mock_push_request_errors_array": (
            None,
            [handle, ctypes.c_int16, size, ctypes.POINTER(number)],
        ),
    }
    for name, (result, arguments) in signatures.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise RuntimeError(f"the librdkafka of this confluent-kafka has no {name}") from None
        function.restype, function.argtypes = result, arguments
    return library
