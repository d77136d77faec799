"""Angles between the clients' updates of a round: the same way, across, or against each other."""
