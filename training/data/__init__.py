"""Data sets: published and own ones, formats, splits, partitions."""
