"""Faults by which a topic loses records, each on a topic of its own; and what went by them, as the brokers' files show it."""

from __future__ import annotations

import random
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic
from waiting import slow_s

from .history import DELETED, RECREATED, TRUNCATED, Gone, Writer, now

if TYPE_CHECKING:
    from .faults import ProxiedCluster

Steps = Generator[float, None, None]
"""A fault: yields the seconds after which it goes on, and has ended when it returns."""

STEADY, UNCLEAN, SHORTENED, ANEW = "soak", "soak.unclean", "soak.shortened", "soak.anew"
"""Topics: nothing goes from the first one; the others lose records by unclean elections, by deletion, and with the topic itself."""
TOPICS = {STEADY: 6, UNCLEAN: 3, SHORTENED: 2, ANEW: 2}
"""With their numbers of partitions."""
LIMIT_S = 12.0
"""A step of a fault may wait so long for the brokers, in seconds of a quiet machine."""
_UNKNOWN_TOPIC, _TOPIC_EXISTS = 3, 36
"""Error codes."""
_IN_SYNC = {"min.insync.replicas": 2}


class _Loss(NamedTuple):
    how: str
    partition: int
    since: float
    at: float
    offset: int
    topic_id: str = ""
    files: tuple[Path, ...] = ()
    """Copies of the log's segments, where the broker will not have them any longer."""


class Losses:
    """The topics, the faults that take records from them, and the records that went."""

    def __init__(self, cluster: ProxiedCluster, directory: Path, rng: random.Random) -> None:
        self._cluster = cluster
        self._directory = directory
        self._rng = rng
        self._losses: list[_Loss] = []
        self._deleted: dict[int, dict[int, Path]] = defaultdict(dict)
        """Links to segments from which records were deleted, by partition and inode: the brokers remove theirs within minutes."""

    def create_topics(self) -> None:
        a, b, c = self._cluster.broker_ids
        self._cluster.create_topic(STEADY, TOPICS[STEADY], 3, _IN_SYNC)
        self._cluster.create_topic(
            UNCLEAN, config={"min.insync.replicas": 1}, replica_assignment=[[a, b], [b, c], [c, a]]
        )
        self._cluster.create_topic(SHORTENED, TOPICS[SHORTENED], 3, _IN_SYNC)
        self._cluster.create_topic(ANEW, TOPICS[ANEW], 3, _IN_SYNC)

    # ------------------------------------------------------------ faults

    def delete_records(self, note: Callable[[object], None]) -> Steps:
        """Deletes all that is in a partition now: who has not read it yet is passed."""
        partition = self._rng.randrange(TOPICS[SHORTENED])
        with suppress(KafkaException, KeyError, FileNotFoundError):
            before, since = self._cluster.end_offsets(SHORTENED)[SHORTENED, partition], now()
            data = self._partition(SHORTENED, partition)
            if data is None or data.leader < 0:
                return
            self._link(partition, data.leader)
            note(f"{SHORTENED}-{partition} before {before}")
            # Whether it was done where there is no answer, the log's start says at the end.
            self._losses.append(_Loss(DELETED, partition, since, since, before))
            self._cluster.delete_records(SHORTENED, partition, before)
        yield 0.0

    def _link(self, partition: int, leader: int) -> None:
        """Links the segments of a leader, which has all that was acknowledged."""
        kept = self._deleted[partition]
        for file in sorted((self._cluster.data_directory(leader) / f"{SHORTENED}-{partition}").glob("*.log")):
            inode = file.stat().st_ino
            if inode not in kept:
                place = self._directory / "lost" / f"{SHORTENED}-{partition}-{inode}"
                place.mkdir(parents=True)
                (link := place / file.name).hardlink_to(file)
                kept[inode] = link

    def make_anew(self, note: Callable[[object], None]) -> Steps:
        """Deletes the topic, and creates it again. All brokers answer when it begins: one that is stopped would delete the next topic, too,
        once it goes on."""
        since, old = now(), self._topic_id(ANEW)
        note(ANEW)
        admin = self._cluster.admin
        if not self._done(admin.delete_topics([ANEW], request_timeout=slow_s(5)), _UNKNOWN_TOPIC):
            print("given up: the topic is not deleted", flush=True)
            return
        self._losses += [_Loss(RECREATED, p, since, now(), 0, old) for p in range(TOPICS[ANEW])]
        yield self._rng.choice([0.0, self._rng.uniform(0, 3)])
        config = {key: str(value) for key, value in _IN_SYNC.items()}
        new = [NewTopic(ANEW, TOPICS[ANEW], 3, config=config)]
        yield from self._until(
            lambda: self._done(admin.create_topics(new, request_timeout=10), _TOPIC_EXISTS),
            "the topic to be made anew",
        )

    @staticmethod
    def _done(futures: dict[str, Any], code: int) -> bool:
        """Whether it is done, now or, as this error code says, before."""
        try:
            for future in futures.values():
                future.result()
        except KafkaException as error:
            return bool(error.args[0].code() == code)
        return True

    def elect_uncleanly(self, note: Callable[[object], None], hold: Callable[[int, bool], None]) -> Steps:
        """Lets a leader acknowledge records that its only follower has not got, kills it, and has the follower elected. `hold` keeps both from
        other faults, and gives them free again."""
        partition = self._rng.randrange(TOPICS[UNCLEAN])
        data = self._partition(UNCLEAN, partition)
        if data is None or len(data.isrs) < 2 or data.leader not in data.isrs:
            return
        leader, (follower,) = data.leader, [b for b in data.replicas if b != data.leader]
        hold(leader, True)
        hold(follower, True)
        note(f"{UNCLEAN}-{partition} from {leader} to {follower}")
        self._cluster.pause(follower)

        def alone() -> bool:
            data = self._partition(UNCLEAN, partition)
            return data is not None and data.isrs == [leader]

        if (yield from self._until(alone, "the follower to leave the in-sync replicas")):
            yield self._rng.uniform(1, 4)
            yield from self._lose(partition, leader, follower)
            self._cluster.restart(leader, wait=False)
        self._cluster.resume(follower)
        hold(leader, False)
        hold(follower, False)

    def _lose(self, partition: int, leader: int, follower: int) -> Steps:
        def replica(broker: int) -> Path:
            return self._cluster.data_directory(broker) / f"{UNCLEAN}-{partition}"

        since, before = now(), _last_epoch(replica(follower))
        self._cluster.kill(leader)
        copy = self._directory / "lost" / f"{UNCLEAN}-{partition}-{len(self._losses)}"
        shutil.copytree(replica(leader), copy)
        self._cluster.resume(follower)

        def elected() -> bool:
            data = self._partition(UNCLEAN, partition)
            if data is not None and data.leader == follower:
                return _last_epoch(replica(follower)) > before
            self._cluster.elect({UNCLEAN: [partition]}, unclean=True)
            return False

        if (yield from self._until(elected, "the follower to be elected")):
            _, offset = _last_epoch(replica(follower))
            files = tuple(copy.glob("*.log"))
            self._losses.append(_Loss(TRUNCATED, partition, since, now(), offset, files=files))

    # ------------------------------------------------------------ what brokers say

    def _partition(self, topic: str, partition: int) -> Any:
        """The partition's metadata; None where nobody has any."""
        with suppress(KafkaException, KeyError):
            return self._cluster.admin.list_topics(topic, timeout=5).topics[topic].partitions[partition]
        return None

    def _topic_id(self, topic: str) -> str:
        """The id of the topic as it is now, from the brokers' files."""
        former = {loss.topic_id for loss in self._losses}
        return next(i for i, _, _ in self._replicas(topic) if i not in former)

    def _replicas(self, topic: str) -> Iterable[tuple[str, int, Path]]:
        """The replicas of all topics of this name that are in the brokers' files, also of those that are deleted: topic id, partition,
        directory."""
        for broker in self._cluster.broker_ids:
            for place in self._cluster.data_directory(broker).glob(f"{topic}-*"):
                found = re.fullmatch(re.escape(topic) + r"-(\d+)(\..+)?", place.name)
                named = place / "partition.metadata"
                if found and named.exists() and (said := re.search(r"topic_id: (\S+)", named.read_text())):
                    yield said[1], int(found[1]), place

    @staticmethod
    def _until(condition: Callable[[], bool], what: str) -> Generator[float, None, bool]:
        """Lets time pass until it is so; returns False, and says so, where that takes too long."""
        limit = time.monotonic() + slow_s(LIMIT_S)
        while not condition():
            if time.monotonic() > limit:
                print(f"given up: {what}", flush=True)
                return False
            yield 0.3
        return True

    # ------------------------------------------------------------ what went

    def topic_ids(self) -> dict[str, str]:
        """The ids of the topics as they are at the end."""
        return {topic: self._topic_id(topic) for topic in TOPICS}

    def write(self, writer: Writer) -> None:
        """Adds what went to the history. All brokers run."""
        begins = self._cluster.beginning_offsets(SHORTENED)
        former: dict[tuple[str, int], list[Path]] = {}
        for topic_id, partition, place in self._replicas(ANEW):
            own = list(place.glob("*.log"))
            if _size(own) > _size(former.get((topic_id, partition), [])):
                former[topic_id, partition] = own
        wanted = {file for loss in self._losses for file in loss.files}
        wanted |= {link for links in self._deleted.values() for link in links.values()}
        wanted |= {file for files in former.values() for file in files}
        logs = self._cluster.dumped(sorted(wanted))
        left: dict[int, dict[int, str]] = defaultdict(dict)
        for partition, links in self._deleted.items():
            for link in links.values():
                left[partition] |= logs[link]
        for loss in self._losses:
            topic, offset = {TRUNCATED: UNCLEAN, DELETED: SHORTENED, RECREATED: ANEW}[loss.how], loss.offset
            went: dict[int, str] = {}
            if loss.how == DELETED:
                if offset > begins[SHORTENED, loss.partition]:
                    continue  # it was not carried out
                own = left[loss.partition]
                went = {o: own.pop(o) for o in sorted(own) if o < offset}
            else:
                for file in loss.files or former.get((loss.topic_id, loss.partition), []):
                    went |= {o: value for o, value in logs[file].items() if o >= offset}
            offsets = sorted(went)
            values = [went[o] for o in offsets]
            writer.write(
                Gone(
                    *(loss.at, topic, loss.partition, loss.how, loss.since, offset),
                    *(offsets, values, loss.topic_id),
                )
            )


def _size(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files)


def _last_epoch(replica: Path) -> tuple[int, int]:
    """The last leader epoch that a replica knows, and the offset with which it began."""
    lines = (replica / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    epoch, offset = map(int, lines[-1].split()) if lines else (-1, 0)
    return epoch, offset
