"""Small pure helpers and shells that every other package may use; they know nothing of Kafka's protocol."""
