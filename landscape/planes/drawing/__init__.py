"""Parts of drawn planes: fills, colour scales, markers, a preview."""
