"""Means of the last W global models of a recorded run, for windows that it was not trained with."""
