"""Advice for errors of brokers that name the cause and not what to do about it.

Theory of operation. Arrives: an error code and the broker's text, or the error made of them. The table has the errors whose
remedy is the same whatever the resource: an option of the brokers to set, another argument to give, or another call to make.
Advice stands behind the broker's own words and never replaces them.

It is a table by classes of errors, not by requests, since the same error has the same remedy whoever caused
it; an error without a row stays as the broker said it.
"""

from __future__ import annotations

from kafka_actors.errors import (
    KafkaError,
    OffsetOutOfRangeError,
    SecurityDisabledError,
    TopicDeletionDisabledError,
    UnknownTopicOrPartitionError,
    error_for_code,
)

__all__ = ["advised", "refusal"]

_ADVICE: dict[type[KafkaError], str] = {
    OffsetOutOfRangeError: "give an offset from the start of the log to its high watermark, or LATEST for that",
    SecurityDisabledError: "set authorizer.class.name on the brokers and controllers",
    TopicDeletionDisabledError: "set delete.topic.enable=true on the brokers and controllers",
    UnknownTopicOrPartitionError: "list_topics names the topics that the principal may describe",
}


def advised(error: KafkaError) -> KafkaError:
    """The error with advice at the end of its message, if there is some. Changes the error itself: to be called once for each."""
    advice = _ADVICE.get(type(error))
    if advice is not None:
        error.message = f"{error.message.rstrip('. ')}: {advice}" if error.message else advice
    return error


def refusal(
    code: int,
    message: str | None = None,
    *,
    request: str,
    topic: str | None = None,
    group: str | None = None,
) -> KafkaError | None:
    """Error of a code, as `error_for_code` creates it, with advice; None for 0."""
    error = error_for_code(code, message, request=request, topic=topic, group=group)
    return None if error is None else advised(error)
