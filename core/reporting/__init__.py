"""The report of runs: one page for a co-author, made from results that lie beside the runs."""
