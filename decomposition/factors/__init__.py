"""The factors of a loss, which add up to it: what is computed, its result and its figure."""
