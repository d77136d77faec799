"""Files: written atomically, checked before they are read, locked, compressed; HDF5 and archives."""
