"""Runs that another program trains, recorded as they happen. Needs numpy, h5py, xxhash and lazy_loader alone."""
