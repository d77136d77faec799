"""A run's numbers and figures in the tracker that one uses anyway, each point once."""
