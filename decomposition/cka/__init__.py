"""How similar models are: linear CKA of their outputs or layers, between clients, over rounds."""
