"""TLS and SASL on a connection, before its first request (KIP-12, KIP-43, KIP-84, KIP-152, KIP-255, KIP-368)."""
