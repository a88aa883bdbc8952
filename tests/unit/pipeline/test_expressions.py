"""Expressions are checked before the start, and an error names the step of a path."""

import pyarrow.compute as pc
import pytest

import kafka_actors as ka
from kafka_actors.errors import ConfigError


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        (
            pc.field("st", "y") > 0,
            r"^filter\(st\.y > 0\): \(st\.y > 0\): there is no 'st\.y': .* has no field 'y'; there are x, total$",
        ),
        (pc.field("st", "totl") > 0, r"has no field 'totl'; did you mean 'total'\?$"),
        (
            pc.field(("st", "x", "z")) > 0,
            r"there is no 'st\.x\.z': int32 has no field 'z', as it is no struct$",
        ),
        (pc.field("sst", "x") > 0, r"there is no column 'sst'; did you mean 'st'\?$"),
        (pc.field("_kafka", "ofset") > 0, r"there is no '_kafka\.ofset': .*; did you mean 'offset'\?$"),
        (pc.field(9) > 0, r"there are 2 columns, numbered from 0: id, st$"),
        (pc.field("st", "x"), r"^filter\(st\.x\): st\.x is int32: must be true or false$"),
    ],
    ids=str,
)
def test_a_path_that_leads_nowhere_is_told_by_its_step(expression, said):
    read = ka.Pipeline.read_kafka("t", bootstrap_servers="b:1").decode_json(
        "id BIGINT, st STRUCT<x: INT, total: INT>"
    )
    with pytest.raises(ConfigError, match=said):
        read.filter(expression).write_parquet("x").check()
