"""A federation before anything is trained: who holds which samples."""
