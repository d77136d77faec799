"""Files, and what all rooms need around them.

Files are written atomically, checked before they are read, locked, compressed; HDF5 and archives. Besides them here are
errors, warnings and other sentences for users, what a public function is given, processes, and the state of torch.
"""
