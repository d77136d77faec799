"""Which parameters clients disagree about, and which clients disagree alike: FedSA's diagnosis."""
