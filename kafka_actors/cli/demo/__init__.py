"""`kafka-actors demo`: the main job on a cluster of its own, with a worker killed half way, and what became of it."""
