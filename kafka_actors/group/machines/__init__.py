"""Machines of a group's member (`base.machine`): decisions without IO."""
