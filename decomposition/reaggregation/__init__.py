"""What another server method makes of a recorded cohort."""
