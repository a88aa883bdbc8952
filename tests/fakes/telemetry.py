"""A recorder that remembers, and the metrics that a reader exports."""

from kafka_actors.telemetry.recorder import Recorder


class Kept(Recorder):
    """Remembers the sums and values that it gets."""

    def __init__(self):
        self.sums = {}
        self.values = {}

    def add(self, instrument, amount, attributes=()):
        key = instrument.name, attributes
        self.sums[key] = self.sums.get(key, 0) + amount

    def record(self, instrument, value, attributes=()):
        self.values.setdefault((instrument.name, attributes), []).append(value)


def exported(reader):
    """Name → points, each (attributes, point)."""
    data = reader.get_metrics_data()
    if data is None:
        return {}
    metrics = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics]
    return {m.name: [(dict(p.attributes), p) for p in m.data.data_points] for m in metrics}
