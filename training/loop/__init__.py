"""Rounds: federation, server step, metrics, recording, state, branches."""
