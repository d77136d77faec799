"""One file a command: its options, what it asks, and what it prints."""
