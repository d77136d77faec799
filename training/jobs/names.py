"""The launchers by name: ``local`` is one command after the other in this one's own process, as ever."""

LOCAL = "local"
LAUNCHERS = (LOCAL, "processes", "slurm")
#: a file at whose end a command's output is put, for sentences
LOG = "the log of a command"
