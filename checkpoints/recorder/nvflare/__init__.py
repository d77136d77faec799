"""Recording of NVFlare's jobs."""
