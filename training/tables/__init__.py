"""Tables for a paper: runs by their settings, means and deviations over seeds, and what a few seeds can show."""
