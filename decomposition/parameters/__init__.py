"""Single parameters over the clients of a round: densities, and a map of many of them."""
