"""``fedscope theory``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..asking.source import Source
from .options import Count, Output, output_options, source_options

if TYPE_CHECKING:
    from ..asking.models import Posed
    from ..asking.replaying import Replays
    from ..checkpoints import Partial, Run
    from ..decomposition import Outputs
    from ..decomposition.theory import ClientBound, Gap, Theory
    from ..landscape import Samples

#: ε of shrunk clients, besides 1
SHRINK = tuple(2.0**-i for i in range(1, 7))


@click.command(
    "theory",
    epilog="Example:  fedscope theory runs/fma    "
    "Lemma 1 alone, quickly:  fedscope theory runs/fma --kernel none --rounds 1,20,40,last --limit 500",
)
@click.argument("run", type=click.Path(path_type=Path), metavar="RUN")
@click.option("--rounds", default="all", metavar="1,20,last", help="Rounds of Lemma 1.  [default: all with clients]")
@click.option("--shrink", metavar="20,last|none", help="Those whose clients are also shrunk.  [default: the last]")
@click.option("--kernel", metavar="20,last|none", help="Rounds of Theorem 2.  [default: the last of --rounds]")
@click.option("--kernel-samples", type=Count(1), default=1000, show_default=True, help="Samples of the kernel.")
@click.option("--dimension", type=Count(1), default=1024, show_default=True, help="To which gradients are projected.")
@click.option(
    "--draws",
    default="local:4",
    show_default=True,
    metavar="local:R|none",
    help="Replays whose variance is compared with Theorem 2's, or none.",
)
@click.option(
    "--outputs",
    type=click.Choice(["probabilities", "logits"]),
    default="probabilities",
    show_default=True,
    help="Which outputs f(x) of a client are averaged and compared.",
)
@source_options("train", files=True)
@output_options
def command(
    run: Path,
    rounds: str,
    shrink: str | None,
    kernel: str | None,
    kernel_samples: int,
    dimension: int,
    draws: str,
    outputs: Outputs,
    source: Source,
    output: Output,
) -> None:
    """Whether Lemma 1 and Theorem 2 of model averaging (Zhou et al.) show in a recorded run.

    Lemma 1: averaging weights is averaging outputs up to O(Δ²), Δ the clients' greatest distance from their mean; over
    rounds, and for one round's clients drawn towards their mean. Theorem 2: a client's variance follows the MMD between
    its data and all clients', in the neural tangent kernel. --split is of Lemma 1; the kernel is always of the training
    data. --seed draws the subsets and the projection.
    """
    from ..asking.models import pose
    from ..asking.names import slug
    from ..asking.replaying import replays_of
    from ..asking.runs import identity, open_run, parse_rounds
    from ..asking.samples import describe_samples
    from ..checkpoints import FedscopeError, Partial, recorded_clients, rounds_with_clients, versions
    from ..decomposition.theory import Theory, as_numbers, kernel_rows, sentence
    from .results import FIGURE, figures, kinds, obtain, say

    if source.precision != "float32":
        raise FedscopeError(
            f"--precision {source.precision} cannot see a gap that falls to nothing, which is measured in float64; "
            "leave it out"
        )
    opened = open_run(run)
    have = rounds_with_clients(opened)
    numbers = parse_rounds(rounds, have if have and rounds.strip() == "all" else opened.rounds, str(run))
    for number in numbers:
        recorded_clients(opened, number, start=False)
    shrunk = some_rounds(shrink, numbers, have, "--shrink", str(run))
    if not set(shrunk) <= set(numbers):
        raise FedscopeError(f"--shrink {shrink}: round {min(set(shrunk) - set(numbers))} is not asked for by --rounds")
    kernels = some_rounds(kernel, numbers, have, "--kernel", str(run))
    count = replays(draws) if kernels else 0
    refuse_without_partition(opened, source.split, kernels, count)
    for number in kernels:  # refused now, not after Lemma 1
        recorded_clients(opened, number)
        kernel_rows(opened.partition, opened.round(number).client_ids, kernel_samples, source.seed, number)
    question = pose([f"{opened.path}@{numbers[0]}/client-{opened.round(numbers[0]).client_ids[0]}"], source)
    samples = samples_of(question, opened, source, kernels)
    settings: dict[str, Any] = {
        **{key: question.settings[key] for key in ("architecture", "behaviour", "precision", "device")},
        **describe_samples(samples, source.seed if source.limit or kernels else None),
        **{"run": identity(opened), "rounds": numbers, "shrink": shrunk, "kernel": kernels, "limit": source.limit},
        **{"kernel_samples": kernel_samples if kernels else None, "dimension": dimension if kernels else None},
        **{"draws": f"local:{count}" if count else None, "outputs": outputs, "parameters": opened.layout.size},
    }

    def compute(attrs: dict[str, Any], partial: Path) -> Theory:
        # Rounds do not enter the fingerprint: asking for more of them goes on with those that are done.
        asked = {key: value for key, value in attrs.items() if key not in ("rounds", "shrink", "kernel")}
        with Partial(partial, {**asked, "versions": versions(), "prediction": "diagonal"}) as store:
            gaps = [gap for t in numbers for gap in lemma(opened, t, t in shrunk, question, samples, settings, store)]
            left = [t for t in kernels if f"{t} kernel" not in store.done] if count else []
            limited = source.limit is not None
            cost = replays_of(opened, left, count, settings["device"], limited=limited, instead="--draws none needs 0")
            cost.announce()
            bounds = [
                one for t in kernels for one in theorem(opened, t, question, count, cost, source.seed, settings, store)
            ]
        return Theory(opened.name, tuple(gaps), tuple(bounds), attrs)

    base = output.out or opened.path / "figures" / f"theory-{source.split}-{slug(rounds)}"
    main = Path(f"{base}.theory.json")
    taken = kinds(base, "theory.csv", *FIGURE)
    result = obtain(compute, lambda _: Theory.load(base), lambda made: made.save(base), main, settings, output, taken)
    say(
        sentence(result),
        [Path(f"{base}.theory.csv"), main, *figures(base, result.figure(output.inches, output.title))],
        as_json=output.as_json,
        **as_numbers(result),
    )


def some_rounds(text: str | None, asked: Sequence[int], have: Sequence[int], option: str, run: str) -> list[int]:
    """Rounds of a part of the analysis: the last one asked for by default, nothing for ``none``."""
    from ..asking.runs import parse_rounds

    if text is None or text.strip() == "last":
        return [asked[-1]]
    return [] if text.strip() == "none" else parse_rounds(text, tuple(have), run, option=option)


def replays(text: str) -> int:
    """R of ``local:R``; 0 for ``none``.

    Raises:
        FedscopeError: other draws.
    """
    from ..asking.draws import parse_draws
    from ..checkpoints import FedscopeError

    if text == "none":
        return 0
    if text.partition(":")[0] != "local":
        raise FedscopeError(f"--draws {text}: the variance here is one over replays; use local:R (local:4) or none")
    return parse_draws(text).count


def refuse_without_partition(run: Run, split: str, kernels: Sequence[int], count: int) -> None:
    """Say what a run of another program lacks (a partition, a configuration) before anything is computed."""
    from ..checkpoints import FedscopeError

    if run.partition is None and (kernels or split == "train"):
        needs = "Theorem 2 needs it" if kernels else "--split train is all clients' data"
        raise FedscopeError(
            f"{run.path} does not say which client holds which samples (no partition.h5), and {needs}; "
            "give --split test --kernel none for Lemma 1 alone"
        )
    if run.is_foreign and count:
        raise FedscopeError(
            f"{run.path} was recorded by {run.info['source']}, whose training cannot be replayed; give --draws none"
        )


def samples_of(question: Posed, run: Run, source: Source, kernels: Sequence[int]) -> Samples:
    """The samples of Lemma 1.

    Raises:
        FedscopeError: the partition is used, but is of other data.
    """
    from ..asking.samples import global_training_data
    from ..checkpoints import FedscopeError
    from ..decomposition.theory import refuse_outside

    if run.partition is None or (source.split == "test" and not kernels):
        return question.samples
    seen = run.info.get("data", {}).get("sha256")
    if seen is None:
        refuse_outside(run.partition, len(question.dataset.samples("train")), str(run.path), str(source.data))
    elif seen != question.dataset.sha256:
        raise FedscopeError(
            f"--data {source.data} is not the data that {run.path} was trained on, so that its clients hold other "
            "samples; leave out --data, or give --split test --kernel none"
        )
    if source.split == "test":
        return question.samples
    samples = global_training_data(question.dataset, run.partition)
    return samples if source.limit is None else samples.limit(source.limit, source.seed)


def lemma(
    run: Run, number: int, shrunk: bool, question: Posed, samples: Samples, settings: dict[str, Any], store: Partial
) -> list[Gap]:
    """The gap of a round, and of its shrunk clients; finished ones are kept in ``store``."""
    from ..decomposition.theory import Gap, locality_gaps
    from .progress import progress

    made: list[Gap] = []
    for kind, shrink in (("recorded", (1.0,)), ("shrunk", SHRINK if shrunk else ())):
        key = f"{number} {kind}"
        if shrink and key not in store.done:
            round_ = run.round(number)
            with progress(f"{run.path}@{number}") as report:
                gaps = locality_gaps(
                    question.module,
                    samples,
                    round_.clients(),
                    round_.weights,
                    round=number,
                    shrink=shrink,
                    outputs=settings["outputs"],
                    device=settings["device"],
                    progress=report,
                )
            store.add(key, [asdict(gap) for gap in gaps])
        made += [Gap(**gap) for gap in store.done[key]] if shrink else []
    return made


def theorem(
    run: Run,
    number: int,
    question: Posed,
    count: int,
    cost: Replays,
    seed: int,
    settings: dict[str, Any],
    store: Partial,
) -> list[ClientBound]:
    """The clients of a round in Theorem 2, of the model they were sent; a finished round is kept in ``store``."""
    from ..decomposition.theory import ClientBound, client_bounds, kernel_rows, replay_variances, tangent_kernel
    from ..training import Replayer
    from .progress import progress

    key = f"{number} kernel"
    if key in store.done:
        return [ClientBound.from_json(one) for one in store.done[key]]
    round_, device = run.round(number), settings["device"]
    rows, members = kernel_rows(run.partition, round_.client_ids, settings["kernel_samples"], seed, number)
    whole = question.dataset.samples("train")
    of_kernel = replace(whole, x=whole.x[rows], y=whole.y[rows], indices=rows)
    with progress(f"{run.path}@{number} kernel") as report:
        kernel = tangent_kernel(
            *(question.module, of_kernel.x, round_.read("start")),
            **{"dimension": settings["dimension"], "seed": seed, "device": device, "progress": report},
        )
    made = client_bounds(kernel, members, round_.client_ids, round=number)
    if count:
        with progress(f"{run.path}@{number} replays") as report:
            cohort = Replayer.of(run, question.dataset, device=device).local_draws(
                number, count, cost.watch(number, report)
            )
        spread = replay_variances(question.module, of_kernel, cohort, outputs=settings["outputs"], device=device)
        made = tuple(replace(one, replay_variance=float(own)) for one, own in zip(made, spread, strict=True))
    store.add(key, [one.to_json() for one in made])
    return list(made)
