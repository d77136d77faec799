"""The report of runs: one page for a co-author, made from the results in the runs' folders."""
