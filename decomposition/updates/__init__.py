"""How clients' updates of a round lie to each other: the same way, across, or against each other."""
