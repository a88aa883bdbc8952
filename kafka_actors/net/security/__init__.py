"""TLS and SASL (KIP-12, KIP-43, KIP-84, KIP-152, KIP-255, KIP-368): what is said before a connection is used."""
