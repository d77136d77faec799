"""How many models an average needs: averages of subsets of a round's clients."""
