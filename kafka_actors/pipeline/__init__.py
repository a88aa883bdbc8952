"""`Pipeline`: a definition, its check, and its Arrow stages at work on batches. Engines run it: Ray, Spark."""

from .pipeline import Pipeline

__all__ = ["Pipeline"]
