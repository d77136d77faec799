"""The first layer of points on a plane, combined from outputs that are computed once."""
