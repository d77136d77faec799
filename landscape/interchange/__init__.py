"""Surfaces of other programs, read and written."""
