"""Models on a map: t-SNE and PCA of clients of any rounds and runs, from exact distances."""
