"""A page of a run that goes on, for a browser of the same machine."""
