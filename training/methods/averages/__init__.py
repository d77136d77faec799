"""Averages over rounds. One paper a file; the file's name is the method's."""
