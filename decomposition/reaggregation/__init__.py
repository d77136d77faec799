"""Aggregation of a recorded cohort by another server method."""
