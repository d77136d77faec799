"""A decomposition in sentences: which factor dominates in which phase, and where the data do not decide."""
