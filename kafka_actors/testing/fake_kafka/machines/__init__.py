"""The brokers' decisions, without IO: requests and the time go in, responses come out."""
