"""Lemma 1 and Theorem 2 of Zhou et al. on a recorded run: how far averaging weights is from averaging outputs, and
whether the discrepancy between data sets predicts the variance of a client."""
