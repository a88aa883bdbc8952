"""`python -m kafka_actors` is `kafka-actors`."""

from kafka_actors.cli import main

main()
