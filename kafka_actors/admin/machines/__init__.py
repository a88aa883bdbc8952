"""What decides in the admin: what answers mean, how far a group is behind, where a reset would put it. Pure."""
