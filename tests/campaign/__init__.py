"""Damaged files, by the thousand: what is spoilt, with which command it is read, and how the command ended."""
