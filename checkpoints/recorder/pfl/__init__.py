"""Recording of pfl-research's simulations."""
