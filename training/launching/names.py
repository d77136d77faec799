"""The launchers by name: ``local`` is one command after the other in this one's own process, as ever."""

LOCAL = "local"
LAUNCHERS = (LOCAL, "processes", "slurm")
