"""``fedscope line``."""

from __future__ import annotations

from pathlib import Path

import click

from .options import Count, Output, Source, output_options, source_options


@click.command("line", epilog="Example:  fedscope line runs/fma@last runs/ima@last")
@click.argument("models", nargs=-1, required=True, metavar="A B [A B ...]")
@click.option("--points", type=Count(3), default=81, show_default=True, help="Points on the line.")
@click.option(
    "--range", "span", type=float, nargs=2, default=(-0.5, 1.5), show_default=True, help="Ends of the line, as beta."
)
@source_options("test", files=True)
@output_options
def command(models: tuple[str, ...], points: int, span: tuple[float, float], source: Source, output: Output) -> None:
    """Losses along the segment between two models, beta = 0 at B and 1 at A; several pairs make several curves.

    A model is RUN@ROUND[/WHICH] or a file: runs/ima@40, runs/ima@last/global, runs/ima@40/client-17, best.pt.
    """
    from ..checkpoints import FedscopeError
    from ..landscape import Line, betas_on, line
    from .names import base_for
    from .progress import progress
    from .results import figures, obtain, precision_words, say
    from .sources import pose

    if len(models) % 2:
        raise FedscopeError(f"a line needs pairs of models, but got {len(models)}; give A B [A B ...]")
    if not span[0] < span[1]:
        raise FedscopeError(f"--range {span[0]:g} {span[1]:g} is upside down; give the smaller end first")
    base = base_for(output.out, "line", models)
    question = pose(models, source)
    pairs = list(zip(question.models[::2], question.models[1::2], strict=True))

    def compute(attrs: dict[str, object], partial: Path) -> Line:
        with progress("line") as report:
            return line(
                question.module,
                question.samples,
                pairs,
                betas=betas_on(span, points),
                device=question.settings["device"],
                precision=source.precision,
                progress=report,
                partial=partial,
                provenance=attrs,
            )

    file = Path(f"{base}.nc")
    settings = {**question.settings, "points": points, "range": list(span)}
    result = obtain(compute, Line.load, lambda made: made.save(file), file, settings, output)
    written = [file, *figures(base, result.figure(output.inches, output.title))]
    barriers = ", ".join(
        f"{barrier:.3g} at beta = {beta:.2f} ({label})" if barrier else f"none ({label})"
        for barrier, beta, label in zip(result.barrier, result.barrier_beta, result.pairs, strict=True)
    )
    say(
        f"loss barrier (greatest excess over the straight line between the ends): {barriers}"
        + precision_words(result.attrs),
        written,
        as_json=output.as_json,
        barrier=[float(b) for b in result.barrier],
    )
