"""Ways to split a data set over clients. One a file; the file's name is the partition's."""
