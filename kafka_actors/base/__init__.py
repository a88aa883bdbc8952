"""Pieces that every other package may use: they know nothing of brokers, records, Ray or Spark."""
