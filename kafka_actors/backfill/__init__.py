"""From history to live, exactly: `Pipeline.backfill` makes a `Backfill`."""

from .backfill import Backfill
from .machines.handover_plan import HandoverPlan, PlannedPartition, PlannedTopic

__all__ = ["Backfill", "HandoverPlan", "PlannedPartition", "PlannedTopic"]
