"""What code of one's own is handed and returns: arguments that it must leave as they are, and arrays that a run's files
can hold."""
