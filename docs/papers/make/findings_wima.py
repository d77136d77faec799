"""Findings from WIMA's results: three sentences each."""

from __future__ import annotations

from pathlib import Path

import wima
import wima_rules as rules
from long_pages import groups
from outcomes import Outcome
from verdicts import Number, borne, points, said


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
        f"its claims. {_long(results)}WIMA does not change training, so `fedscope wima RUN` can compute it "
        "afterwards for any recorded run.",
    )


def _long(results: Path) -> str:
    """The same after 1,000 rounds, where a long run is finished: each level by its seeds, and all windows."""
    own = groups(results.parent / "long", "wima")
    found = {one.key: one for of in (own[0].outcomes.values() if own else ()) for one in of}
    if not {"gains", "any_window"} <= found.keys():
        return ""
    gains, windows = (_numbers(found[key]) for key in ("gains", "any_window"))
    borne(min(one.value for one in (*gains, *windows)) > 0, "long runs gain, with any window")
    single = max(len(one.seeds) for one in gains) < 2
    values = " and ".join(f"{points(one).partition(' (')[0] if single else points(one)} ({one.where})" for one in gains)
    low, high = (100 * pick(one.value for one in windows) for pick in (min, max))
    runs = "a single run of" if single else "runs of"
    return (
        f"In {runs} 1,000 of the paper's 10,000 rounds the gain is {values}, and with windows of 5 to 200 rounds "
        f"{low:.1f} to {high:.1f} points. "
    )


def _numbers(outcome: Outcome) -> tuple[Number, ...]:
    return outcome.numbers[outcome.effects :]
