"""``fedscope cka``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from ..asking.source import Source
from .options import Count, Output, output_options, source_options

if TYPE_CHECKING:
    from ..asking.models import Posed
    from ..checkpoints import Run
    from ..decomposition.similarity import ClientCKA, ModelCKA, RoundCKA


@dataclass(frozen=True)
class Asked:
    """What is asked of every pair of models."""

    layers: tuple[str, ...]
    estimator: Literal["unbiased", "biased"]
    batch: int | None
    source: Source

    def minibatch(self, question: Posed) -> int:
        """Samples of a minibatch, at most."""
        from ..decomposition.similarity import usual_batch

        return self.batch or usual_batch(len(question.samples))

    def of(self, question: Posed) -> dict[str, Any]:
        """The same as arguments."""
        device, seed, precision = question.settings["device"], self.source.seed, self.source.precision
        own = {"layers": self.layers, "estimator": self.estimator, "batch": self.minibatch(question), "seed": seed}
        return {**own, "device": device, "precision": precision}


@click.command(
    "cka",
    epilog="Example:  fedscope cka runs/ima --rounds 1,20,last    Of any models:  "
    "fedscope cka runs/fma@last runs/ima@last runs/ima@1/start",
)
@click.argument("models", nargs=-1, required=True, metavar="RUN [RUN ...] | A B [C ...]")
@click.option(
    "--rounds",
    metavar="1,20,last",
    help="Which rounds of every RUN, or all with their clients.  [default: the first and last of these]",
)
@click.option(
    "--layer",
    "layers",
    multiple=True,
    metavar="NAME",
    help="Compare this submodule's outputs, as conv1; repeatable, a result each.  [default: output, the logits]",
)
@click.option(
    "--estimator",
    type=click.Choice(["unbiased", "biased"]),
    default="unbiased",
    show_default=True,
    help="Of HSIC on a minibatch; the biased one is high for any features that outnumber the samples.",
)
@click.option(
    "--batch",
    type=Count(4),
    help="Samples of a minibatch, at most.  [default: 256, or an eighth of the samples where that is less]",
)
@source_options("test", files=True)
@output_options
def command(
    models: tuple[str, ...],
    rounds: str | None,
    layers: tuple[str, ...],
    estimator: Literal["unbiased", "biased"],
    batch: int | None,
    source: Source,
    output: Output,
) -> None:
    """How alike models answer the same inputs: linear CKA of all pairs, 1 where they differ by a rotation and a scale.

    RUN: between the clients of each of its --rounds, and of each client with the round's global model. A B [C ...]: one
    matrix of any models, RUN@ROUND[/WHICH] or files; RUN@all/global is a model a round.

    --seed also shuffles the samples before they are cut into minibatches.
    """
    from ..checkpoints import FedscopeError

    asked = Asked(layers or ("output",), estimator, batch, source)
    # what is neither an address nor a file is meant for a run, and is refused with those that there are
    whole = [given for given in models if Path(given).is_dir() or ("@" not in given and not Path(given).suffix)]
    others = [given for given in models if given not in whole]
    if whole and others:
        raise FedscopeError(
            f"{whole[0]} is a run, and {others[0]} a model; give runs only, or models only, as in {whole[0]}@last"
        )
    if others and rounds is not None:
        raise FedscopeError(f"--rounds {rounds} is for whole runs, but {others[0]} names a model; give its run instead")
    if whole:
        _runs([Path(path) for path in whole], rounds, asked, output)
    else:
        _models(models, asked, output)


def _runs(paths: Sequence[Path], rounds: str | None, asked: Asked, output: Output) -> None:
    """The clients of whole runs over rounds: a result a run and layer, a figure a layer."""
    from ..asking.models import pose
    from ..asking.names import slug
    from ..asking.runs import client_rounds, open_runs
    from ..decomposition.similarity import clients_sentence, draw_clients
    from .results import FIGURE, figures, kinds, refuse_taken, say

    opened = open_runs(paths)
    names = [run.name for run in opened]
    numbers = [client_rounds(run, rounds) for run in opened]
    cohorts = [[_cohort(run, number) for number in own] for run, own in zip(opened, numbers, strict=True)]
    each = zip(opened, numbers, cohorts, strict=True)
    question = pose([f"{run.path}@{own[0]}/client-{ids[0][0]}" for run, own, ids in each], asked.source)
    what = "-".join([asked.source.split, *names[1:], slug(rounds or "1,last")]) + _variant(asked)
    base = output.out or opened[0].path / "figures" / f"cka-{what}"
    bases = [Path(f"{base}.{run.name}") if len(opened) > 1 else base for run in opened]
    results_of = [[Path(f"{_beside(own, layer, asked)}.nc") for layer in asked.layers] for own in bases]
    written = [file for files in results_of for file in files]
    taken = [path for layer in asked.layers for path in kinds(_beside(base, layer, asked), *FIGURE)]
    refuse_taken(written, taken, output)
    each_run = zip(opened, numbers, results_of, strict=True)
    made = [_run(run, own, files, question, asked, output) for run, own, files in each_run]
    for layer, results in zip(asked.layers, zip(*made, strict=True), strict=True):
        written += figures(_beside(base, layer, asked), draw_clients(results, output.inches, output.title))
    every = [result for results in made for result in results]
    say(
        "\n".join(clients_sentence(result) for result in every),
        written,
        as_json=output.as_json,
        rounds=[row for result in every for row in as_numbers(result)],
    )


def _run(
    run: Run, numbers: list[int], files: list[Path], question: Posed, asked: Asked, output: Output
) -> list[ClientCKA]:
    """One run's results, one a layer."""
    from dataclasses import replace
    from math import nan

    from ..asking.runs import identity
    from ..checkpoints import Partial
    from ..decomposition.similarity import ClientCKA, RoundCKA, round_similarity
    from ..training import error_curves
    from .progress import progress
    from .results import obtain_all

    # a run of another program may have no metrics
    curves = error_curves(run) if (run.path / "metrics.csv").exists() else ()
    errors = {
        t: e for curve in curves if curve.label == "global" for t, e in zip(curve.rounds, curve.error, strict=True)
    }
    common = {**_settings(question, asked), "run": [identity(run)], "rounds": numbers}
    common = {key: value for key, value in common.items() if key not in ("addresses", "models_sha256")}

    def compute(attrs: list[dict[str, Any]], partial: Path) -> list[ClientCKA]:
        # Rounds do not enter the fingerprint: asking for more of them goes on with those that are done.
        known = {key: value for key, value in attrs[0].items() if key not in ("rounds", "layer")}
        done: list[list[RoundCKA]] = []
        with Partial(partial, {**known, "layers": list(asked.layers)}) as store:
            for number in numbers:
                if str(number) not in store.done:
                    round_ = run.round(number)
                    with progress(f"{run.path}@{number}") as report:
                        found = round_similarity(
                            question.module,
                            question.samples,
                            round_.clients(),
                            number=number,
                            client_ids=round_.client_ids,
                            globals_=round_.read("global") if "global" in round_.models else None,
                            progress=report,
                            **asked.of(question),
                        )
                    store.add(str(number), [one.to_json() for one in found])
                error = errors.get(number, nan)
                done.append([replace(RoundCKA.from_json(one), test_error=error) for one in store.done[str(number)]])
        return [ClientCKA(rounds, own) for rounds, own in zip(zip(*done, strict=True), attrs, strict=True)]

    settings = [{**common, "layer": layer} for layer in asked.layers]
    return obtain_all(compute, ClientCKA.load, lambda made, file: made.save(file), files, settings, output)


def _models(models: tuple[str, ...], asked: Asked, output: Output) -> None:
    """Any models: a matrix a layer."""
    from ..asking.models import expand, pose
    from ..asking.names import base_for
    from ..checkpoints import FedscopeError, parse_address
    from ..decomposition.similarity import ModelCKA, model_similarity, models_sentence
    from .progress import progress
    from .results import FIGURE, figures, kinds, obtain_all, say

    addresses = [address for given in models for address in expand(given)]
    parsed = [parse_address(address) for address in addresses]
    if len(addresses) < 2:
        one = f"a round's clients are compared by fedscope cka {parsed[0].path} --rounds {parsed[0].round}"
        raise FedscopeError(
            f"{addresses[0]} is one model, and similarity is between two or more; name another"
            + (f" ({one})" if parsed[0].round is not None else "")
        )
    question = pose(addresses, asked.source)
    base = output.out or Path(f"{base_for(None, 'cka', models)}{_variant(asked)}")
    files = [Path(f"{_beside(base, layer, asked)}.nc") for layer in asked.layers]

    def compute(attrs: list[dict[str, Any]], partial: Path) -> list[ModelCKA]:
        with progress("cka") as report:
            asking = {**asked.of(question), "progress": report, "provenance": attrs}
            return list(model_similarity(question.module, question.samples, question.models, **asking))

    settings = [{**_settings(question, asked), "layer": layer} for layer in asked.layers]
    taken = [path for layer in asked.layers for path in kinds(_beside(base, layer, asked), *FIGURE)]
    results = obtain_all(compute, ModelCKA.load, lambda made, file: made.save(file), files, settings, output, taken)
    drawn = [
        path
        for layer, result in zip(asked.layers, results, strict=True)
        for path in figures(_beside(base, layer, asked), result.figure(output.inches, output.title))
    ]
    say(
        "\n".join(models_sentence(result) for result in results),
        [*files, *drawn],
        as_json=output.as_json,
        models=list(results[0].labels),
        cka={result.layer: result.cka.tolist() for result in results},
    )


def _cohort(run: Run, number: int) -> list[int]:
    """The ids of a round's recorded clients.

    Raises:
        FedscopeError: they were not recorded; there is only one.
    """
    from ..checkpoints import FedscopeError, recorded_clients

    ids: list[int] = recorded_clients(run, number, start=False).client_ids.tolist()
    if len(ids) < 2:
        raise FedscopeError(
            f"{run.path}@{number} has a cohort of one, so there is no pair; train with more clients a round "
            "(--clients, --participation)"
        )
    return ids


def _settings(question: Posed, asked: Asked) -> dict[str, Any]:
    """The provenance of a result; refuses too few samples before anything is computed."""
    from ..decomposition.similarity import minibatches

    estimator, batch, seed = asked.estimator, asked.minibatch(question), asked.source.seed
    batches = len(minibatches(len(question.samples), batch, seed, estimator))
    return {**question.settings, "estimator": estimator, "batch": batch, "batches": batches, "seed": seed}


def _variant(asked: Asked) -> str:
    """What a default name says of a layer and an estimator that are not the default."""
    layer = "" if len(asked.layers) > 1 or asked.layers == ("output",) else f"-{asked.layers[0].replace('/', '-')}"
    return layer + ("-biased" if asked.estimator == "biased" else "")


def _beside(base: Path, layer: str, asked: Asked) -> Path:
    """``BASE``, or ``BASE.conv1`` where there are several layers."""
    return Path(f"{base}.{layer.replace('/', '-')}") if len(asked.layers) > 1 else base


def as_numbers(result: ClientCKA) -> list[dict[str, Any]]:
    """Every round's means, for --json."""
    names = ("mean", "mean_stderr", "mean_global", "mean_global_stderr")
    where = {"run": result.run, "layer": result.layer}
    return [{**where, "round": one.round, **{name: getattr(one, name) for name in names}} for one in result.rounds]
