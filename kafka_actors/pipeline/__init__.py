"""`Pipeline`: a definition, its check, and how its Arrow stages are carried out. Engines run it: Ray, Spark."""

from .pipeline import Pipeline

__all__ = ["Pipeline"]
