"""What local training gains on a client's own data and loses on the others', by client and class."""
