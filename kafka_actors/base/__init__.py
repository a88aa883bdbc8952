"""Small pieces that every other package may use; they know nothing of Kafka, Ray or Spark."""
