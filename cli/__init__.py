"""The command line: one file a command, parsing and glue, no mathematics."""
