"""What analyses are given: models and samples, from runs, files and programs."""
