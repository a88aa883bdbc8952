"""The coordinator: the Kafka group on one side, the job's workers and their commits on the other."""
