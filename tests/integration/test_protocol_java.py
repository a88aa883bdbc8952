"""Our messages are Kafka's: declarations compared with the JSON definitions inside the kafka-clients jar, random
messages with what Kafka's own generated Java classes read and write. What they said is kept: see `fakes.java_answers`."""

import json
import random
import re
import struct
import subprocess
import uuid
import zipfile

import pytest
from fakes.java_answers import JAVA, Answers
from fakes.messages import REQUESTS, RESPONSES
from waiting import slow_s

from kafka_actors import errors, protocol
from kafka_actors.protocol.schema import Element, FieldSpec, Message, Range, fields_of
from kafka_actors.testing.distribution import DEFAULT_VERSION, Distribution

SOURCE = JAVA / "protocol" / "ProtocolOracle.java"
DATA = [
    protocol.RequestHeader,
    protocol.ResponseHeader,
    protocol.ConsumerProtocolSubscription,
    protocol.ConsumerProtocolAssignment,
]
MESSAGES = [*REQUESTS.values(), *RESPONSES.values(), *DATA]
API_NAMES = re.findall(
    r"\w+",
    """
    Produce Fetch ListOffsets Metadata OffsetCommit OffsetFetch FindCoordinator JoinGroup Heartbeat LeaveGroup
    SyncGroup DescribeGroups ListGroups SaslHandshake ApiVersions CreateTopics DeleteTopics DeleteRecords
    InitProducerId OffsetForLeaderEpoch AddPartitionsToTxn AddOffsetsToTxn EndTxn TxnOffsetCommit DescribeConfigs
    SaslAuthenticate CreatePartitions DeleteGroups OffsetDelete DescribeCluster ConsumerGroupHeartbeat
    ConsumerGroupDescribe IncrementalAlterConfigs DescribeAcls CreateAcls DeleteAcls
    DescribeProducers DescribeTransactions ListTransactions
    """,
)


def definitions_of_jar() -> str:
    """Kafka's definitions of our messages, as JSON by message name, without what they say about themselves."""
    jar = Distribution.get().home / "libs" / f"kafka-clients-{DEFAULT_VERSION}.jar"
    wanted = {cls.__name__ for cls in MESSAGES}
    wanted |= {name.replace("Response", "Request") for name in wanted}
    found = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE)
                definition = json.loads(text, object_pairs_hook=without_about)
                if definition["name"] in wanted:
                    found[definition["name"]] = definition
    return json.dumps(found)


def without_about(pairs: list[tuple[str, object]]) -> dict[str, object]:
    return {name: value for name, value in pairs if name != "about"}


@pytest.fixture(scope="module")
def oracle():
    made = Oracle(Answers("protocol", SOURCE, DEFAULT_VERSION))
    yield made
    made.close()


@pytest.fixture(scope="module")
def definitions(oracle):
    """Kafka's definitions by message name."""
    return json.loads(oracle.answers.get(b"definitions", definitions_of_jar))


def test_javas_answers_are_of_this_program_and_kafka(oracle):
    assert not oracle.answers.is_stale, "make java-answers"


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def expected_default(field: dict) -> object:
    kind, text = field["type"], field.get("default")
    if text is not None and str(text) == "null":
        return None
    if kind.startswith("[]"):
        return []
    if kind.startswith(("int", "uint")):
        return int(str(text or 0), 0)
    simple = {
        "bool": str(text).lower() == "true",
        "string": text or "",
        "bytes": b"",
        "records": None,
        "uuid": protocol.ZERO_UUID,
    }
    return simple.get(kind, "its own defaults")


def described(field: dict, common: dict) -> dict:
    """A field of Kafka's definitions in the form that ``declared`` gives ours."""
    kind = field["type"].removeprefix("[]")
    inner = field.get("fields") or common.get(kind)
    return {
        "name": snake(field["name"]),
        "type": field["type"],
        "versions": Range.parse(field["versions"]),
        "nullable": Range.parse(field.get("nullableVersions", "none")),
        "tag": field.get("tag"),
        "tagged": Range.parse(field.get("taggedVersions", "none")),
        "default": expected_default(field),
        "ignorable": field.get("ignorable", False),
        "flexible": field.get("flexibleVersions") != "none",
        "fields": [described(f, common) for f in inner or []],
    }


def declared(cls: type[Element]) -> list[dict]:
    return [
        {
            "name": f.name,
            "type": ("[]" if f.wire == "array" else "")
            + (f.struct.__name__ if f.struct else f.item or f.wire),
            "versions": f.versions,
            "nullable": f.nullable,
            "tag": f.tag,
            "tagged": f.versions if f.tag is not None else Range.parse("none"),
            "default": "its own defaults" if f.wire == "struct" and f.default == f.struct() else f.default,
            "ignorable": f.ignorable,
            "flexible": f.flexible,
            "fields": declared(f.struct) if f.struct else [],
        }
        for f in fields_of(cls)
    ]


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_every_field_is_as_kafka_defines_it(cls, definitions):
    definition = definitions[cls.__name__]
    common = {c["name"]: c["fields"] for c in definition.get("commonStructs", [])}
    assert declared(cls) == [described(f, common) for f in definition["fields"]]


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_versions_are_as_kafka_defines_them(cls, definitions):
    definition = definitions[cls.__name__]
    valid = Range.parse(definition["validVersions"])
    assert (cls.min_version, cls.max_version) == (valid.low, valid.high)
    flexible = definition["flexibleVersions"]
    assert cls.flexible_from == (None if flexible == "none" else Range.parse(flexible).low)
    if cls not in DATA:
        assert cls.api_key == definition["apiKey"]
        request = definitions[cls.__name__.replace("Response", "Request")]
        assert cls.latest == valid.high - request.get("latestVersionUnstable", False)


def test_all_apis_that_were_asked_for_are_there(definitions):
    assert {cls.__name__ for cls in REQUESTS.values()} == {f"{name}Request" for name in API_NAMES}
    for key, cls in REQUESTS.items():
        assert protocol.ApiKey(key).name == snake(cls.__name__.removesuffix("Request")).upper()
        assert cls.response is RESPONSES[key]
        assert cls.response.__name__ == cls.__name__.replace("Request", "Response")


def test_error_codes_are_kafkas(oracle):
    printed = oracle.answers.get(
        b"errors", lambda: run_java("errors").communicate(timeout=slow_s(120))[0].decode()
    )
    kafkas = {}
    for line in printed.splitlines():
        code, name, retriable, invalid_metadata = line.split()
        kafkas[int(code)] = (name, retriable == "true", invalid_metadata == "true")
    assert len(kafkas) > 130
    ours = {code: errors.for_code(code) for code in kafkas}
    assert {c: (e.name, e.retriable, e.invalid_metadata) for c, e in ours.items()} == kafkas


# ---------------------------------------------------------------- random messages through Kafka's classes

# What the Java program calls each class.
KINDS = {
    **dict.fromkeys(REQUESTS.values(), 0),
    **dict.fromkeys(RESPONSES.values(), 1),
    protocol.RequestHeader: 2,
    protocol.ResponseHeader: 3,
    protocol.ConsumerProtocolSubscription: 4,
    protocol.ConsumerProtocolAssignment: 5,
}
INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
TEXTS = ["", "orders", "größer", "日本語", "💸" * 40, "x" * 126, "y" * 127, "z" * 128, "w" * 0x7FFF]


def run_java(*arguments: str) -> subprocess.Popen[bytes]:
    kafka = Distribution.get()
    command = [kafka.java, "-cp", kafka.classpath, str(SOURCE), *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


class Oracle:
    """A Java process that decodes and encodes again, or the answers that one has given."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self._process: subprocess.Popen[bytes] | None = None

    def same(self, cls: type[Message], version: int, bodies: list[bytes]) -> None:
        """Kafka's classes read these and write the same bytes."""

        def ask() -> str:
            for number, body in enumerate(bodies):
                status, answer = self._round_trip(cls, version, body)
                assert status == 0, f"Kafka refuses {cls.__name__} v{version}: {answer.decode()}"
                assert answer == body, f"version {version}, message {number}"
            return "the same bytes"

        question = f"{cls.__name__} {version} ".encode() + b"".join(
            struct.pack(">i", len(b)) + b for b in bodies
        )
        assert self.answers.get(question, ask) == "the same bytes"

    def refusal(self, cls: type[Message], version: int, body: bytes) -> str:
        """Why Kafka's classes don't read it."""

        def ask() -> str:
            status, answer = self._round_trip(cls, version, body)
            assert status != 0
            return answer.decode()

        return self.answers.get(f"{cls.__name__} {version} refuses ".encode() + body, ask)

    def _round_trip(self, cls: type[Message], version: int, body: bytes) -> tuple[int, bytes]:
        if self._process is None:
            self._process = run_java()
        question = struct.pack(">bhh", KINDS[cls], getattr(cls, "api_key", -1), version) + body
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(struct.pack(">i", len(question)) + question)
        self._process.stdin.flush()
        size, status = struct.unpack(">ib", self._process.stdout.read(5))
        return status, self._process.stdout.read(size - 1)

    def close(self) -> None:
        self.answers.close()
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(timeout=slow_s(30))


def random_message(cls: type[Element], version: int, rng: random.Random) -> Element:
    """A message with random values in all fields that the version has."""
    flexible = getattr(cls, "flexible_from", None)
    return random_struct(cls, version, flexible is not None and version >= flexible, rng)


def random_struct(cls: type[Element], version: int, flexible: bool, rng: random.Random) -> Element:
    present = [f for f in fields_of(cls) if version in f.versions and (flexible or f.tag is None)]
    skipped = {f.name for f in present if f.tag is not None and rng.random() < 0.3}
    values = {f.name: random_value(f, version, flexible, rng) for f in present if f.name not in skipped}
    return cls(**values)


def random_value(f: FieldSpec, version: int, flexible: bool, rng: random.Random) -> object:
    if version in f.nullable and rng.random() < 0.25:
        return None
    if f.wire == "array":
        count = rng.choice([0, 1, 2, 3])
        if f.struct is None:
            count = rng.choice([0, 1, 5, 130])
        return [random_value(f.element(), version, flexible, rng) for _ in range(count)]
    if f.wire == "struct":
        assert f.struct is not None
        return random_struct(f.struct, version, flexible, rng)
    return random_plain(f.wire, rng)


def random_plain(wire: str, rng: random.Random) -> object:
    if wire in INTEGERS:
        half = 1 << (INTEGERS[wire] - 1)
        return rng.choice([-half, half - 1, -1, 0, 1, rng.randrange(-half, half)])
    if wire == "bool":
        return rng.random() < 0.5
    if wire == "uuid":
        return rng.choice([protocol.ZERO_UUID, uuid.UUID(int=rng.getrandbits(128))])
    if wire == "string":
        return rng.choices(TEXTS, weights=[4] * (len(TEXTS) - 1) + [0.1])[0]
    return rng.randbytes(rng.choice([0, 1, 126, 127, 128, 20_000 if wire == "records" else 300]))


@pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.__name__)
def test_kafkas_classes_read_and_write_the_same_bytes(cls, oracle):
    for version in range(cls.min_version, cls.max_version + 1):
        bodies = []
        for seed in range(12):
            rng = random.Random(f"{cls.__name__} {version} {seed}")
            message = random_message(cls, version, rng)
            bodies.append(protocol.encode(message, version))
            assert protocol.decode_message(cls, version, bodies[-1]) == message
        oracle.same(cls, version, bodies)


@pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.__name__)
def test_defaults_are_what_kafkas_classes_write(cls, oracle):
    for version in range(cls.min_version, cls.max_version + 1):
        body = protocol.encode(cls(), version)
        assert protocol.decode_message(cls, version, body) == cls()
        oracle.same(cls, version, [body])


def test_the_oracle_refuses_what_is_wrong(oracle):
    assert "left over" in oracle.refusal(protocol.HeartbeatResponse, 0, b"\x00\x00\x00")
