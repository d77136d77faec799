"""Local training of a cohort: engines, models of workers, vectorised training."""
