"""Findings from WIMA's results: three sentences each."""

from __future__ import annotations

from pathlib import Path

import wima
import wima_rules as rules
from verdicts import borne, points, said


def window(results: Path) -> tuple[str, str, str]:
    """What a mean over the last rounds gains."""
    scale = wima.Scale()
    gained, steadier, windows = rules.gain(results), rules.measured_steady(results), rules.window_gains(results)
    borne(
        gained.low > 0 and steadier.low > 0 and all(one.value > 0 for one in windows),
        "WIMA gains, is steadier, and any window is better than none",
    )
    best = max(windows, key=lambda one: one.value)
    values = [100 * one.value for one in windows]
    return (
        f"With one class per client, WIMA's accuracy minus FedAvg's is {points(gained)} over the last measured rounds. "
        f"Its changes from one measured round to the next are {said(steadier.value, percent=True)} smaller.",
        f"Windows of {min(scale.windows)} to {max(scale.windows)} rounds gain {min(values):.1f} to {max(values):.1f} "
        f"points; {best.where} gains most.",
        f"FedAvg's accuracy is {100 * rules.level(results):.0f} % then, far below the paper's, so this decides none of "
        "its claims. WIMA does not change training, so `fedscope wima RUN` can compute it "
        "afterwards for any recorded run.",
    )
