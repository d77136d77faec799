"""The command line: what its commands share; parsing and glue, no mathematics."""
