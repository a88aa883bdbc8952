"""State machines and pure functions: time and randomness come in, decisions go out."""
