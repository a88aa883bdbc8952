"""What decides on Spark's side, without sockets, threads, clock or Spark: offset ranges and what is lost."""
