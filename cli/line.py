"""``fedscope line``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..asking.source import Source
from .options import Count, Output, normalization_option, output_options, source_options

if TYPE_CHECKING:
    from ..landscape import Line


@click.command(
    "line",
    epilog="Example:  fedscope line runs/fma@last runs/ima@last    All pairs of a round's clients:  "
    "fedscope line runs/ima@20 --clients",
)
@click.argument("models", nargs=-1, required=True, metavar="A B [A B ...] | RUN@ROUND")
@click.option("--clients", is_flag=True, help="The barriers between all pairs of a round's clients, as a heat map.")
@click.option("--points", type=Count(3), help="Points on a line.  [default: 81; 11 with --clients]")
@click.option(
    "--range", "span", type=float, nargs=2, help="Ends of the lines, as beta.  [default: -0.5 1.5; 0 1 with --clients]"
)
@normalization_option
@source_options("test", files=True)
@output_options
def command(
    models: tuple[str, ...],
    clients: bool,
    points: int | None,
    span: tuple[float, float] | None,
    normalization: str,
    source: Source,
    output: Output,
) -> None:
    """Losses along the segment between two models, beta = 0 at B and 1 at A; several pairs make several curves.

    A model is RUN@ROUND[/WHICH] or a file: runs/ima@40, runs/ima@last/global, runs/ima@40/client-17, best.pt.

    With --clients: linear mode connectivity, the loss barrier between every two clients of a round.
    """
    from itertools import combinations

    import numpy as np

    from ..asking.models import calibration_of, calibration_settings, pose
    from ..asking.names import base_for
    from ..checkpoints import FedscopeError
    from ..landscape import Line, betas_on, line
    from .progress import progress
    from .results import FIGURE, figures, kinds, obtain, precision_words, say

    addresses = clients_of(models) if clients else models
    points = points or (11 if clients else 81)
    span = span or ((0.0, 1.0) if clients else (-0.5, 1.5))
    if not clients and len(models) % 2:
        raise FedscopeError(f"a line needs pairs of models, but got {len(models)}; give A B [A B ...]")
    if not span[0] < span[1]:
        raise FedscopeError(f"--range {span[0]:g} {span[1]:g} is upside down; give the smaller end first")
    base = base_for(output.out, "line-clients" if clients else "line", models)
    question = pose(addresses, source)
    apart = list(zip(question.models[::2], question.models[1::2], strict=False))
    pairs = list(combinations(question.models, 2)) if clients else apart

    def compute(attrs: dict[str, object], partial: Path) -> Line:
        with progress("line") as report:
            return line(
                question.module,
                question.samples,
                pairs,
                betas=np.union1d(betas_on(span, points), [0.5]) if clients else betas_on(span, points),
                normalization=normalization,
                calibration=calibration_of(question, source, normalization),
                device=question.settings["device"],
                precision=source.precision,
                progress=report,
                partial=partial,
                provenance=attrs,
            )

    file = Path(f"{base}.nc")
    settings = {
        **question.settings,
        "points": points,
        "range": list(span),
        "normalization": normalization,
        **calibration_settings(question, source, normalization),
    }
    result = obtain(compute, Line.load, lambda made: made.save(file), file, settings, output, kinds(base, *FIGURE))
    if clients:
        from ..landscape import draw_connectivity

        written = [file, *figures(base, draw_connectivity(result, output.inches, output.title))]
        say(
            pairs_sentence(result) + normalization_words(result) + precision_words(result.attrs),
            written,
            as_json=output.as_json,
            barrier=[float(b) for b in result.barrier],
        )
        return
    written = [file, *figures(base, result.figure(output.inches, output.title))]
    ends = normalization_words(result)
    barriers = ", ".join(
        f"{barrier:.3g} at beta = {beta:.2f} ({label})" if barrier else f"none ({label})"
        for barrier, beta, label in zip(result.barrier, result.barrier_beta, result.pairs, strict=True)
    )
    say(
        f"loss barrier (greatest excess over the straight line between the ends): {barriers}"
        + ends
        + precision_words(result.attrs),
        written,
        as_json=output.as_json,
        barrier=[float(b) for b in result.barrier],
    )


def normalization_words(line: Line) -> str:
    """Whose statistics the curves are of, and what they change at the ends; nothing where models have none."""
    import numpy as np

    from ..landscape.paper import statistics_of

    words = statistics_of(line.attrs, str(line.attrs.get("normalization_policy", "none")))
    if not words or line.own_loss is None:
        return f"; {words}" if words else ""
    at = [int(np.flatnonzero(line.beta == end)[0]) for end in (1.0, 0.0)]
    change = line.loss[:, at] - line.own_loss
    if not change.any():
        return f"; {words}"
    return f"; {words}, which change the loss of the ends by {change.min():+.2g} to {change.max():+.2g}"


def clients_of(models: tuple[str, ...]) -> list[str]:
    """The addresses of all clients of the one round that is named.

    Raises:
        FedscopeError: not one round; one that did not record its clients; a cohort of one.
    """
    from ..checkpoints import FedscopeError, Run, parse_address, recorded_clients

    address = parse_address(models[0])
    if len(models) != 1 or address.round is None or address.which is not None:
        raise FedscopeError(f"--clients takes one round, RUN@ROUND, but got {' '.join(models)}; as in runs/ima@20")
    run = Run.open(address.path)
    round_ = recorded_clients(run, run.round(address.round).number, start=False)
    if len(round_.client_ids) < 2:
        raise FedscopeError(
            f"{models[0]} has a cohort of one, so there is no pair; train with more clients a round "
            "(--clients, --participation)"
        )
    return [f"{address.path}@{round_.number}/client-{k}" for k in round_.client_ids.tolist()]


def pairs_sentence(line: Line) -> str:
    """What lies between all pairs, in words."""
    import numpy as np

    from ..landscape import connectivity

    labels, barriers, middles = connectivity(line)
    names = [label.rpartition("client-")[2] for label in labels]
    upper = np.triu_indices(len(names), 1)
    if not np.isfinite(middles[upper]).all():
        return f"{int((~np.isfinite(middles[upper])).sum())} of {len(upper[0])} pairs have losses that are not finite"

    def words(values: np.ndarray, k: int) -> str:
        i, j = upper[0][k], upper[1][k]
        return f"{values[i, j]:.3g} (clients {names[i]} and {names[j]})"

    own = middles[upper]
    with_barrier = int((barriers[upper] > 0).sum())
    barrier = "no pair has a barrier"
    if with_barrier:
        barrier = f"{with_barrier} with a barrier, the greatest {words(barriers, int(barriers[upper].argmax()))}"
    return (
        f"{len(own)} pairs of clients: loss of the mean of two less their mean loss {own.mean():.3g} on average, "
        f"{words(middles, int(own.argmin()))} to {words(middles, int(own.argmax()))}; {barrier}"
    )
