"""Pure decisions of the data source, without sockets, threads, clock or Spark: offsets, ranges, tasks, losses."""
