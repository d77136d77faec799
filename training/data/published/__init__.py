"""Data sets. One loader a file; the file's name is the data set's. Nothing is downloaded."""
