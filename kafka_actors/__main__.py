"""Runs the command `kafka-actors` for `python -m kafka_actors`."""

import sys

from kafka_actors.cli import main

if __name__ == "__main__":
    sys.exit(main())
