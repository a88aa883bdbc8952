"""Assignment of one consumer, from the group's leader, inside SyncGroup."""

from typing import Annotated

from kafka_actors.protocol.schema import Element, Int32, Message, V, data


class TopicPartition(Element):
    topic: str = ""
    partitions: list[Int32] = []


@data("0-3", flexible="none")
class ConsumerProtocolAssignment(Message):
    assigned_partitions: list[TopicPartition] = []
    user_data: Annotated[bytes | None, V(nullable="0+")] = None
