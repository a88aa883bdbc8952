"""Settings and their resources as the command line names them."""

from kafka_actors.admin import AlterConfigOp, ConfigResource
from kafka_actors.cli.configs import changes_of, resources_named


def test_resources_are_named_by_their_kinds() -> None:
    assert resources_named(("orders,clicks",), ("1",), True, ("g",)) == [
        ConfigResource("TOPIC", "orders"),
        ConfigResource("TOPIC", "clicks"),
        ConfigResource("BROKER", "1"),
        ConfigResource("BROKER", ""),
        ConfigResource("GROUP", "g"),
    ]


def test_each_flag_is_an_operation() -> None:
    assert changes_of(["a=1", "b=x=y"], ["c,d"], ["e=2"], ["f=3"]) == [
        AlterConfigOp("a", "1"),
        AlterConfigOp("b", "x=y"),
        AlterConfigOp("c", None, "DELETE"),
        AlterConfigOp("d", None, "DELETE"),
        AlterConfigOp("e", "2", "APPEND"),
        AlterConfigOp("f", "3", "SUBTRACT"),
    ]
