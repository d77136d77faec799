"""Architectures. One a file; the file's name is the model's."""
