"""All requests and responses that there are: each is declared when its module is imported."""

from kafka_actors.protocol import ApiKey, message_class
from kafka_actors.protocol.schema import REQUESTS, RESPONSES

__all__ = ["REQUESTS", "RESPONSES"]

for _api in ApiKey:
    message_class(_api, "request")
