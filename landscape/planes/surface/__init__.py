"""The loss on a plane: grids, adaptive refinement, evaluation, and checks of files."""
