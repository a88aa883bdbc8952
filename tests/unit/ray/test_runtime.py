import pytest

from kafka_actors.ray.runtime import CLASSES, class_of


@pytest.mark.parametrize("kind", CLASSES)
def test_the_class_of_each_kind_of_actor_is_there(kind: str) -> None:
    assert class_of(kind).__name__ == CLASSES[kind][1]
