"""The decomposition and the page of ``fedscope explain``: computed, kept and read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..asking.draws import Draws
from ..asking.source import Source

if TYPE_CHECKING:
    from ..checkpoints import Partial, Run
    from ..decomposition import Decomposition
    from ..decomposition.explaining import Comparison, Explanation


def question_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a store of finished rounds answers. Rounds do not enter: asking for more of them goes on with those."""
    from ..checkpoints import versions

    return {key: value for key, value in {**settings, "versions": versions()}.items() if key != "rounds"}


def decomposed(
    groups: Sequence[Sequence[Run]],
    rounds: Mapping[str, Sequence[int]],
    draws: Draws,
    source: Source,
    settings: Mapping[str, Any],
    attrs: dict[str, Any],
    partial: Path,
) -> Decomposition:
    """The decomposition, exactly as ``fedscope decompose`` makes it; finished rounds are kept in ``partial``."""
    from ..asking.samples import common_samples, dataset_of
    from ..checkpoints import Partial
    from ..decomposition import Decomposition
    from .decomposing import Asked, decompose_runs

    runs = [run for group in groups for run in group]
    if len(runs) > 1:
        common_samples(runs, dataset_of(runs, source), source)  # refuses those with other data
    with Partial(partial, question_of(settings)) as store:
        parts = tuple(
            part
            for group in groups
            for part in decompose_runs(group, rounds[group[0].name], Asked(draws), source, settings["device"], store)
        )
    return Decomposition(parts, split=source.split, draws=str(draws), attrs=attrs)


def kept_explanation(
    base: Path, result: Decomposition, early: Mapping[str, int], *, redraw: bool
) -> Explanation | None:
    """The page that lies beside its decomposition; None where there is none yet, or one of an earlier fedscope,
    or with other last ``early`` rounds by run.

    Raises:
        FedscopeError: with ``redraw``, where there is none, or one of another decomposition or an earlier fedscope.
    """
    from ..checkpoints import FedscopeError
    from ..decomposition.explaining import Explanation

    path = Path(f"{base}.explain.json")
    if not redraw and (not path.exists() or Explanation.is_outdated(base)):
        return None
    kept = Explanation.load(base)
    if dict(kept.attrs) == dict(result.attrs):
        return kept if redraw or dict(kept.early) == dict(early) else None
    if redraw:
        raise FedscopeError(f"{path} explains another result than {base}.factors.json holds; leave out --redraw")
    return None


def explained(
    base: Path,
    result: Decomposition,
    groups: Sequence[Sequence[Run]],
    rounds: Mapping[str, Sequence[int]],
    early: int | None,
    source: Source,
    settings: Mapping[str, Any],
) -> Explanation:
    """The page of a decomposition, saved beside it; similarities and tests are kept in a store until it is."""
    from ..checkpoints import Partial
    from ..decomposition.explaining import explain

    by_name = {"+".join(run.name for run in group): group[0] for group in groups}
    with Partial(Path(f"{base}.explain.json.partial"), question_of(settings)) as store:
        made = explain(
            result,
            lengths={name: run.rounds[-1] for name, run in by_name.items()},
            early=early,
            similarity={
                name: similarity(run, rounds[run.name], source, settings, store) for name, run in by_name.items()
            },
            compared={name: compared(run, rounds[run.name], source, settings, store) for name, run in by_name.items()},
            stand_ins={name: run.name for name, run in by_name.items() if name != run.name},
        )
        made.save(base)
        store.finish()
    return made


def similarity(
    run: Run, rounds: Sequence[int], source: Source, settings: Mapping[str, Any], store: Partial
) -> list[tuple[int, float, float | None, int]]:
    """The mean CKA of a round's clients' outputs on the same samples, with its standard error, a round each; of rounds
    with two clients or more, where it exists. Finished rounds are kept in ``store``."""
    from math import isfinite

    from ..asking.samples import common_samples, dataset_of, module_for
    from ..decomposition.similarity import LEAST, minibatches, round_similarity, usual_batch
    from .progress import progress

    dataset = dataset_of([run], source)
    samples = common_samples([run], dataset, source)
    if len(samples) < LEAST["unbiased"]:
        return []
    module, found, batch = module_for(run, source, dataset), [], usual_batch(len(samples))
    seed = settings["seed"] or 0  # of the minibatches; what is not in the settings must not change the page
    batches = len(minibatches(len(samples), batch, seed))
    for number in rounds:
        round_, key = run.round(number), f"{run.path}@{number}"
        if len(round_.client_ids) < 2:
            continue
        if key not in store.done:
            with progress(f"{key} similarity") as report:
                (one,) = round_similarity(
                    module,
                    samples,
                    round_.clients(),
                    number=number,
                    client_ids=round_.client_ids,
                    batch=batch,
                    seed=seed,
                    device=settings["device"],
                    precision=source.precision,
                    progress=report,
                )
            store.add(key, [one.mean, one.mean_stderr])
        mean, error = store.done[key]
        if isfinite(mean):
            found.append((number, mean, error if isfinite(error) else None, batches))
    return found


def compared(
    run: Run, rounds: Sequence[int], source: Source, settings: Mapping[str, Any], store: Partial
) -> list[Comparison]:
    """On test data the average of each round's clients against every one of them, and the average over rounds against
    the global model where both were recorded. Finished rounds are kept in ``store``."""
    from dataclasses import replace

    from ..asking.samples import common_samples, dataset_of, module_for
    from ..checkpoints import weighted_mean
    from ..decomposition.explaining import Comparison, compare_models
    from .progress import progress

    dataset = dataset_of([run], source)
    samples = common_samples([run], dataset, replace(source, split="test"))
    module, found = module_for(run, source, dataset), []
    for number in rounds:
        round_, key = run.round(number), f"{run.path}@{number} tested"
        if key not in store.done:
            common: dict[str, Any] = {"device": settings["device"], "precision": source.precision}
            clients = round_.clients()
            others = {f"client-{k}": clients.row(row) for row, k in enumerate(round_.client_ids.tolist())}
            with progress(key) as report:
                average = weighted_mean(clients, round_.weights)
                made = [
                    compare_models(
                        module, samples, average, others, name="average", number=number, progress=report, **common
                    )
                ]
                if {"averaged", "global"} <= set(round_.models):
                    averaged, others = round_.read("averaged"), {"global": round_.read("global")}
                    made.append(
                        compare_models(module, samples, averaged, others, name="averaged", number=number, **common)
                    )
            store.add(key, [one.to_json() for one in made])
        found += [Comparison.from_json(one) for one in store.done[key]]
    return found
