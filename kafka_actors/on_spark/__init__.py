"""The Spark engine of pipelines: `Pipeline.on_spark` makes an `OnSpark`."""

from .on_spark import OnSpark

__all__ = ["OnSpark"]
