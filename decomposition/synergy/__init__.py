"""Synergy, FedSA's diagnosis: the parameters clients disagree about, and the clients that disagree alike."""
