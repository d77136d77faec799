"""Number of models that an average needs: averages of subsets of a round's clients."""
