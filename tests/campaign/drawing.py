"""What all ways to spoil a file share."""

from __future__ import annotations

import numpy as np

Draw = np.random.Generator
#: the file that code in a pickle makes
CANARY = "hacked"
#: of numbers that no file holds
HUGE = 2**40
