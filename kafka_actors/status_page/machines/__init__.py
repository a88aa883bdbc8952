"""Pure parts of the status page: HTTP as bytes, and the points of the plots, with time passed in."""
