"""From history to live, exactly: `Pipeline.backfill` makes a `Backfill`."""

from .backfill import Backfill
from .machines.plan import HandoverPlan, PlannedPartition, PlannedTopic

__all__ = ["Backfill", "HandoverPlan", "PlannedPartition", "PlannedTopic"]
