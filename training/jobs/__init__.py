"""Commands of fedscope as jobs: on a SLURM cluster, or as processes of this machine; whoever waits for them may die."""
