"""A pipeline over orders, and a function and a class of a user for its stages."""

import kafka_actors as ka

READ = ka.Pipeline.read_kafka("orders", group_id="revenue", bootstrap_servers="localhost:9092")
JSON = READ.decode_json("id BIGINT NOT NULL, country STRING, amount DOUBLE")


def double(batch):
    return batch


class Enrich:
    def __init__(self, rate=1.0):
        self.rate = rate

    def __call__(self, batch):
        return batch
