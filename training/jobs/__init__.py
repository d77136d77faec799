"""Commands of fedscope as jobs: on a SLURM cluster, or as processes of this machine; the process that waits for them
may end."""
