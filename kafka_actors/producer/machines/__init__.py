"""What decides about sending, without IO: time and randomness are passed in."""
