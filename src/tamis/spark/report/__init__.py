"""Reports: the HTML page of a run, and the density experiment."""
