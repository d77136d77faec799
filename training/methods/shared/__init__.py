"""Code that several methods share; a method itself is a file on a shelf: ``clients/``, ``servers/``, ``averages/``."""
