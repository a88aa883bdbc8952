"""The Ray engine of pipelines: `Pipeline.on_ray` makes an `OnRay`."""

from .on_ray import OnRay

__all__ = ["OnRay"]
