"""Numbers of Kafka's APIs: each has its messages, and each message that is sent has its number."""

import importlib
import pkgutil

import pytest

from kafka_actors.protocol import messages
from kafka_actors.protocol.api import ApiKey
from kafka_actors.protocol.codec import message_class


def requests():
    """All classes of requests in `protocol.messages`, by their number."""
    found = {}
    for module in pkgutil.iter_modules(messages.__path__):
        for name, value in vars(importlib.import_module(f"{messages.__name__}.{module.name}")).items():
            if name.endswith("Request") and isinstance(value, type) and hasattr(value, "api_key"):
                found[value.api_key] = value
    return found


@pytest.mark.parametrize("api", ApiKey, ids=lambda api: api.name)
def test_each_api_has_a_request_and_a_response_of_its_name(api):
    words = [word.capitalize() for word in api.name.split("_")]
    request, response = message_class(api, "request"), message_class(api, "response")
    assert request.__name__ == "".join([*words, "Request"])
    assert response.__name__ == "".join([*words, "Response"])
    assert request.api_key == response.api_key == api


def test_each_request_is_of_an_api():
    found = requests()
    assert set(found) == set(ApiKey)
    assert len(found) > 30
