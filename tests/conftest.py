"""Settings for all tests. Kafka's fixtures come from `kafka_actors.testing.plugin`, as they do for users."""

import os

import pytest
from hypothesis import HealthCheck, settings

# Two cores shared with brokers make single examples slow now and then: that says nothing about the code.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

pytest_plugins = ["pytester", "time_budgets", "xdist_groups"]  # only the root conftest may ask for it


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kafka",
        choices=["real", "both"],
        help="cluster of tests that ask for the fixture `cluster`: a real broker, or FakeKafka and then a real one; "
        "by default FakeKafka",
    )
