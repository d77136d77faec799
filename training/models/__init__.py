"""Models: architectures by name, and own ones."""
