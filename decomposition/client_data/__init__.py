"""What a federation looks like before anything is trained: who holds which samples."""
