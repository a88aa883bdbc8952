"""One module per API: its request, its response and the structs inside them, named as in Kafka."""
