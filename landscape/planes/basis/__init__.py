"""The plane's basis: which models span it, and its orthonormal axes."""
