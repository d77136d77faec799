"""Losses on planes: what spans them, how they are surveyed, their result, figures and pages."""
