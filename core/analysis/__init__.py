"""What all questions share: what is measured, how a question is posed and answered, and the one loop over rounds."""
