"""What planes are drawn with: fills, colour scales, markers, a preview."""
