"""What recording every client adds to the time of a round.

One real `train` of the source papers' CNN (3 x 32 x 32): 10 clients x 500 samples x 5 epochs in batches of 50. Odd
rounds record no client (`record.clients` is the list of the even ones), even rounds record all ten, so both kinds are
interleaved in one run; the first round warms up and is left out. Only the last round is evaluated, on 10 samples.

Two figures: the round with clients against the round without, pair by pair, from one round's end to the next; and,
sharper because the rounds' own noise is left out, the seconds that writing takes (a round's end to end less the seconds
that its training took, which the run records itself), clients against none, as a share of the round.

    python benchmarks/recording.py [pairs]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from _common import CLASSES, IMAGE, Line, spread, table

from fedscope.checkpoints import RoundRecord
from fedscope.training.local.profile import Profile
from fedscope.training.loop.federation import Unwatched

TARGET = 0.05
CLIENTS, OWN = 10, 500


class Stopwatch(Unwatched):
    """Seconds of each round from end to end, and how many of them were training."""

    def __init__(self) -> None:
        self.last = time.perf_counter()
        self.whole: dict[int, float] = {}
        self.training: dict[int, float] = {}

    def round(self, record: RoundRecord, of: int) -> None:
        """The round is on the disk."""
        now = time.perf_counter()
        self.whole[record.round], self.training[record.round] = now - self.last, float(record.metrics["seconds"] or 0)
        self.last = now


def main(pairs: int) -> None:
    """Measure and print."""
    import numpy as np

    from fedscope.training import Config, train

    draw = np.random.default_rng(0)
    rounds = 1 + 2 * pairs
    with tempfile.TemporaryDirectory() as folder:
        data, run = Path(folder, "noise.npz"), Path(folder, "run")
        np.savez(
            data,
            x_train=draw.integers(0, 256, (CLIENTS * OWN, *IMAGE), dtype=np.uint8),
            y_train=np.arange(CLIENTS * OWN) % CLASSES,
            x_test=draw.integers(0, 256, (10, *IMAGE), dtype=np.uint8),
            y_test=np.arange(10),
        )
        config = Config.read(
            {
                "data": {"name": f"npz:{data}", "clients": CLIENTS, "partition": "iid"},
                "model": {"name": "cnn"},
                "client": {"epochs": 5, "batch": 50, "lr": 0.01},
                "run": {"rounds": rounds, "participation": 1.0, "evaluate_every": rounds, "evaluate_clients": 0},
                "record": {"clients": list(range(2, rounds + 1, 2))},
            }
        )
        watch = Stopwatch()
        train(config, run, watcher=watch, profile=Profile())  # writes a round before the next one begins
        sizes = {t: (run / "rounds" / f"{t:05d}.h5").stat().st_size / 1e6 for t in (2, 3)}
    writing = {t: watch.whole[t] - watch.training[t] for t in watch.whole}
    even, odd = range(2, rounds, 2), range(3, rounds + 1, 2)
    pair = [watch.whole[a] / watch.whole[b] - 1 for a, b in zip(even, odd, strict=True)]
    added = [(writing[a] - writing[b]) / watch.whole[b] for a, b in zip(even, odd, strict=True)]
    kind = f"{sizes[2]:.0f} MB", f"{sizes[3]:.0f} MB"
    table(
        f"Recording: a round of the papers' CNN, {CLIENTS} clients x {OWN} samples x 5 epochs, {pairs} pairs",
        [
            Line(f"round with all clients ({kind[0]}), seconds", spread([watch.whole[t] for t in even])),
            Line(f"round with none ({kind[1]}), seconds", spread([watch.whole[t] for t in odd])),
            Line("writing with all clients, seconds", spread([writing[t] for t in even], "{:.3f}")),
            Line("writing with none, seconds", spread([writing[t] for t in odd], "{:.3f}")),
            Line("added, round against round", spread(pair, "{:+.1%}")),
            Line(
                "added, by the writing",
                spread(added, "{:+.1%}"),
                f"<= {TARGET:.0%}",
                statistics.median(added) <= TARGET,
            ),
        ],
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
