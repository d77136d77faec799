"""What the lines of all layers of ResNet-18 cost: against as many whole lines, and without computing once what models
have in common that begin alike.

`fedscope.landscape.LayerLines` on two random models of `resnet18-gn` (3 x 32 x 32, 42 layers) and images of noise. Of
each layer there are two lines, with the others at A and at B. One line is `fedscope.landscape.line` between the same
models at the same points, before and after. Times are processor time, so that other programs count for little. Losses
are compared, too: they must be the same bits.

    python benchmarks/layers.py [samples] [points] [points of the first layers together]
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

from _common import CLASSES, IMAGE, Line, random_clients, random_samples, spread, table

#: of a line before and after the others
REPETITIONS = 2


def main(count: int, points: int, few: int) -> None:
    """Measure and print."""
    from fedscope.checkpoints import Model
    from fedscope.landscape import LayerLines, line
    from fedscope.training import build_module, model_settings

    module, samples = build_module(model_settings("resnet18-gn"), IMAGE, CLASSES, seed=0), random_samples(count)
    clients = random_clients(module, 2)
    pair = (Model("a", "noise/a", clients.row(0)), Model("b", "noise/b", clients.row(1)))

    def betas(number: int) -> list[float]:
        return [i / (number - 1) for i in range(number)]

    def one_line() -> list[float]:
        seconds = []
        for _ in range(REPETITIONS):
            began = time.process_time()
            line(module, samples, [pair], betas=betas(points))
            seconds.append(time.process_time() - began)
        return seconds

    def all_layers(layers: str, number: int, *, reuse: bool = True) -> tuple[float, Any]:
        began = time.process_time()
        found = LayerLines(module, samples, layers=layers, betas=betas(number), reuse=reuse).between(pair)
        return time.process_time() - began, found

    one_line()  # the first one loads what it needs
    lines = one_line()
    each, found = all_layers("each", points)
    cumulative, with_ = all_layers("cumulative", few)
    without, plain = all_layers("cumulative", few, reuse=False)
    lines += one_line()
    layers = len(found.layers) - 1
    many = each / (layers * statistics.median(lines))
    faster = without / cumulative
    same = with_.loss.tobytes() == plain.loss.tobytes()
    table(
        f"All {layers} layers of ResNet-18, {points} points a line, {count:,} samples",
        [
            Line("one line, seconds of processor time", spread(lines)),
            Line("each layer, with the others at A and at B, seconds", f"{each:.0f}"),
            Line("  / (layers x one line)", f"{many:.2f}", "<= 1.3", many <= 1.3),
            Line(f"the first layers together, {few} points, seconds", f"{cumulative:.0f}"),
            Line("  all of every model computed, seconds", f"{without:.0f}"),
            Line("  times as fast", f"{faster:.2f}", ">= 1.5", faster >= 1.5),
            Line("  the same bits", "yes" if same else "no", "yes", same),
        ],
    )


if __name__ == "__main__":
    arguments = [int(word) for word in sys.argv[1:]]
    main(*(arguments + [50, 5, 3][len(arguments) :]))
