"""Subscription of one consumer, for the group's leader, inside JoinGroup."""

from typing import Annotated

from kafka_actors.protocol.schema import Element, Int32, Message, V, data


class TopicPartition(Element):
    topic: Annotated[str, V("1+")] = ""
    partitions: Annotated[list[Int32], V("1+")] = []


@data("0-3", flexible="none")
class ConsumerProtocolSubscription(Message):
    topics: list[str] = []
    user_data: Annotated[bytes | None, V(nullable="0+")] = None
    owned_partitions: Annotated[list[TopicPartition], V("1+", ignorable=True)] = []
    generation_id: Annotated[Int32, V("2+", ignorable=True)] = -1
    rack_id: Annotated[str | None, V("3+", nullable="3+", ignorable=True)] = None
