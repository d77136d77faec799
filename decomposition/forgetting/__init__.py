"""Gains of local training on a client's own data and losses on the others', by client and class."""
