"""Many runs as one: what is varied, which runs share a history, and a folder that any kill leaves fit to go on."""
