"""``fedscope forgetting``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import Output, Source, output_options, source_options

if TYPE_CHECKING:
    from torch import nn

    from ..checkpoints import Partial, Run
    from ..decomposition.forgetting import Answers, Forgetting
    from ..landscape import Samples


@click.command("forgetting", epilog="Example:  fedscope forgetting runs/ima --rounds 1,20,last")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--rounds",
    metavar="1,20,last",
    help="Which rounds, or all with their clients.  [default: the first and last of these]",
)
@source_options("train", files=True)
@output_options
def command(run: Path, rounds: str | None, source: Source, output: Output) -> None:
    """What a client's local training does to its accuracy on its own data and on the others', class by class.

    --split train takes all clients' training data; in the test data, a client's own are those of its classes.
    """
    from ..checkpoints import Partial, versions
    from ..decomposition.forgetting import Forgetting
    from ..training import resolve_device
    from .given import dataset_of, given_settings, module_for
    from .names import slug
    from .results import FIGURE, figures, kinds, obtain, say
    from .sources import client_rounds, common_samples, describe_samples, identity, open_run

    opened = open_run(run)
    dataset = dataset_of([opened], source)
    refuse_without_partition(opened)
    asked = client_rounds(opened, rounds)
    refuse_unrecorded(opened, asked)
    samples, module = common_samples([opened], dataset, source), module_for(opened, source, dataset)
    base = output.out or opened.path / "figures" / f"forgetting-{source.split}-{slug(rounds or '1,last')}"
    settings: dict[str, Any] = {
        "run": identity(opened),
        "rounds": asked,
        **given_settings([opened], source),
        **describe_samples(samples, source.seed if source.limit else None),
        "device": resolve_device(source.device),
        "precision": source.precision,
    }

    def compute(attrs: dict[str, Any], partial: Path) -> Forgetting:
        # Rounds do not enter the fingerprint: asking for more of them goes on with those that are done.
        question = {key: value for key, value in {**settings, "versions": versions()}.items() if key != "rounds"}
        with Partial(partial, question) as store:
            return Forgetting.of(counted(opened, module, asked, samples, settings, store), attrs)

    main = Path(f"{base}.nc")
    taken = kinds(base, *FIGURE)
    result = obtain(compute, Forgetting.load, lambda made: made.save(main), main, settings, output, taken)
    say(
        "\n".join(sentence(result, i, opened.name) for i in range(len(result.rounds))),
        [main, *figures(base, result.figure(output.inches, output.title))],
        as_json=output.as_json,
        rounds=[as_numbers(result, i) for i in range(len(result.rounds))],
    )


def refuse_unrecorded(run: Run, rounds: Sequence[int]) -> None:
    """Say before computing that models are missing.

    Raises:
        FedscopeError: a round without its clients, or without the model they were sent.
    """
    from ..checkpoints import FedscopeError, recorded_clients

    for number in rounds:
        if "start" not in recorded_clients(run, number, start=False).models:
            have = [t for t in run.rounds if run.round(t).has_clients and "start" in run.round(t).models]
            raise FedscopeError(
                f"{run.path}@{number} recorded its clients, but not the model they were sent (start), so there is no "
                + (
                    f"before; rounds {', '.join(map(str, have[:12]))} have it"
                    if have
                    else "before, and no round has it"
                )
            )


def refuse_without_partition(run: Run) -> None:
    """What is a client's own and what is the others' hangs on the partition.

    Raises:
        FedscopeError: the run has none.
    """
    from ..checkpoints import FedscopeError

    if run.partition is None and run.is_foreign:
        raise FedscopeError(
            f"{run.path} does not say which client holds which samples (no partition.h5), so no data are a client's "
            "own; give its partition when it is recorded (RunWriter.create)"
        )
    run.require("partition.h5")


def counted(
    run: Run, module: nn.Module, rounds: Sequence[int], samples: Samples, settings: dict[str, Any], store: Partial
) -> list[Answers]:
    """Every round's right answers; finished rounds are kept in ``store``."""
    from ..decomposition import membership_labels, membership_train
    from ..decomposition.forgetting import Answers, count_answers
    from .progress import progress, within

    partition = run.partition
    assert partition is not None, "the command has required it"
    done: list[Answers] = []
    with progress("forgetting") as report:
        for i, number in enumerate(rounds):
            key = f"{run.path}@{number}"
            if key not in store.done:
                round_ = run.round(number)
                ids = round_.client_ids
                members = (
                    membership_train(partition, ids, samples.indices)
                    if settings["split"] == "train"
                    else membership_labels(partition.label_counts, ids, samples.y.numpy())
                )
                answers = count_answers(
                    module,
                    samples,
                    round_.read("start"),
                    round_.clients(),
                    members,
                    number=number,
                    client_ids=ids,
                    labels=partition.label_counts[ids],
                    device=settings["device"],
                    precision=settings["precision"],
                    progress=within(report, i * len(samples), len(rounds) * len(samples)),
                )
                store.add(key, answers.to_json())
            done.append(Answers.from_json(store.done[key]))
            report((i + 1) * len(samples), len(rounds) * len(samples))
    return done


def sentence(result: Forgetting, i: int, run: str) -> str:
    """A round in words: what clients gain, what they lose, and what they forget."""
    import numpy as np

    from ..decomposition.diverged import diverged_words
    from ..decomposition.forgetting import mean_over_clients

    def shown(values: np.ndarray, sign: int) -> str:
        mean, stderr = (100 * float(value[i]) for value in mean_over_clients(values))
        if np.isnan(mean):
            return "unknown"
        return f"{sign * mean:+.3g}" + ("" if np.isnan(stderr) else f" ± {stderr:.2g}") + " points"

    own, others = shown(result.own_gain, 1), shown(result.others_loss, -1)
    known, forgotten = int(result.known[i].sum()), int(result.forgotten[i].sum())
    clients = result.client_ids.shape[1]
    over = f"mean of {clients} clients ± standard error" if clients > 1 else "one client"
    said = f"{run}, round {result.rounds[i]}: local training changes the accuracy on a client's own data by {own} and "
    diverged = diverged_words(result.diverged_in(i), int(result.rounds[i]))
    broken = f"; {diverged}, and NaN outputs count as wrong" if diverged else ""
    if not result.others[i].any():
        return f"{said}no sample is the others' ({over}){broken}"
    said += f"on the others' by {others} ({over}); {forgotten} of {known} pairs of client and class known before are "
    said += "forgotten entirely"
    without = result.client_ids[i][result.own[i].sum(axis=1) == 0]
    if len(without):
        which = ", ".join(map(str, without[:12].tolist())) + (", ..." if len(without) > 12 else "")
        said += f"; client{'s' if len(without) > 1 else ''} {which} without own samples here"
    return said + broken


def as_numbers(result: Forgetting, i: int) -> dict[str, Any]:
    """A round's numbers, for --json."""
    from ..decomposition.forgetting import mean_over_clients

    gain, loss = result.own_gain, result.others_loss
    means = {"own_gain": mean_over_clients(gain), "others_loss": mean_over_clients(loss)}
    numbers: dict[str, Any] = {"round": int(result.rounds[i])}
    for name, (mean, stderr) in means.items():
        numbers |= {name: float(mean[i]), f"{name}_stderr": float(stderr[i])}
    clients = zip(result.client_ids[i].tolist(), gain[i].tolist(), loss[i].tolist(), strict=True)
    return {
        **numbers,
        "known": int(result.known[i].sum()),
        "forgotten": int(result.forgotten[i].sum()),
        "diverged": result.diverged_in(i),
        "clients": [{"client": k, "own_gain": own, "others_loss": others} for k, own, others in clients],
    }
