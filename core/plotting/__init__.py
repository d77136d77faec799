"""Parts of all figures: the look of a paper's figure, a sheet measured in inches, labels at the ends of lines."""
