"""Jobs on the workers of a cluster that others run, with the numbers that this machine's own workers give."""
