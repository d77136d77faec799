"""Similarity of models: linear CKA of their outputs or layers, between clients, over rounds."""
