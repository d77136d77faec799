"""Settings every test shares: figures without a display, and no clock in property tests."""

from __future__ import annotations

import os

from hypothesis import settings

os.environ.setdefault("MPLBACKEND", "Agg")

# A busy machine is no failure, and a failure must come back on the next run.
settings.register_profile("fedscope", deadline=None, derandomize=True)
settings.load_profile("fedscope")
