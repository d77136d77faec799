"""Single parameters over the clients of a round."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ...analysis.analysis import PreparedAnalysis, SettingsAndCompute, analysis, single_result
from ...analysis.execution import Execution
from ...analysis.rounds import Rounds, parse_rounds
from ...analysis.run_identity import identity
from ...analysis.runs import RunLike, resolve_runs
from ...analysis.settings import refuse_idle
from ...checkpoints import FedscopeError, Round, Run, recorded_clients
from ...evaluation.device import Compute
from .parameter_names import ParameterPlace, parse_place
from .result import MOST, ParameterMap, Parameters

#: defaults: densities that are drawn; of a map how many parameters, neighbours of a point, and by what it is made
TOP, SAMPLE, PERPLEXITY, BACKEND = 4, 5000, 30.0, "sklearn"
#: why --top is refused beside names
IDLE_TOP = "chooses the most skewed parameters where --parameter names none; leave one of the two out"


@analysis
def parameters(
    runs: RunLike | Sequence[RunLike],
    *,
    rounds: Rounds = None,
    parameters: str | Sequence[str] = (),
    top: int = TOP,
    tsne: bool = False,
    sample: int = SAMPLE,
    perplexity: float = PERPLEXITY,
    backend: str = BACKEND,
    device: str = "auto",
    seed: int = 0,
) -> PreparedAnalysis[Parameters | ParameterMap]:
    """Single parameters over the clients of a round: the density, and where averaging puts the global value.

    The first run's clients make the densities (:func:`~fedscope.decomposition.parameters.density.density_of`); the
    global models of further runs are marked in them. Give branches of one run, whose clients are the same, to compare
    servers. With ``tsne`` many parameters are points instead, by what the clients do to them
    (:func:`~fedscope.decomposition.parameters.tsne.map_parameters`).

    Args:
        runs: one, or several of one layout; ``RUN@60`` is a run with ``rounds=60``.
        rounds: the one round, of all runs; the last of the first run by default.
        parameters: names, as in ``conv1.weight[3,0,2,2]`` (indices from 0); by default the most skewed.
        top: without ``parameters`` so many, the most skewed of each layer first.
        tsne: a map of one run's parameters, which is a :class:`~fedscope.decomposition.parameters.result.ParameterMap`.
        sample: of the map: how many parameters, at most 20000 (60000 with torchdr), in proportion to the layers.
        perplexity: of the map: neighbours of a point.
        backend: of the map: ``sklearn``, or ``torchdr``, which runs on a GPU.
        device: of ``torchdr``.
        seed: of samples and of the t-SNE.

    Raises:
        FedscopeError: rounds, clients or parameters that there are not; several rounds; runs of different layouts.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> len(fedscope.parameters(run).names)
    4
    >>> folder.cleanup()

    Source: Wang et al., "The Key of Parameter Skew in Federated Learning", arXiv 2408.11278, Figure 2.
    """
    opened, asked_rounds = resolve_runs(runs, rounds, "--round", adapters="numbers")
    number = round_of(opened, asked_rounds if rounds is None else asked_rounds[:1])
    # one number for all runs: their last rounds may differ
    recorded = [recorded_clients(opened[0], number, start=False), *(run.round(number) for run in opened[1:])]
    names = [parameters] if isinstance(parameters, str) else list(parameters)
    if not tsne:
        of_map = {"sample": (sample, SAMPLE), "perplexity": (perplexity, PERPLEXITY), "backend": (backend, BACKEND)}
        refuse_idle(of_map, "belongs to --tsne; give both, or neither")
        if names:
            refuse_idle({"top": (top, TOP)}, IDLE_TOP)
        return densities(opened, recorded, names, top, seed)
    if len(opened) > 1:
        raise FedscopeError(
            f"--tsne maps a sample of one run's parameters, but {len(opened)} runs were given; give one"
        )
    if names:
        raise FedscopeError("--tsne maps a sample of all parameters, but --parameter was given; leave it out")
    refuse_idle({"top": (top, TOP)}, "belongs to densities, and --tsne maps a sample of all parameters; leave it out")
    how = {"sample": sample, "perplexity": perplexity, "backend": backend}
    return point_map(opened[0], recorded[0], how, device, seed)


def round_of(runs: Sequence[Run], rounds: Sequence[str | None]) -> int:
    """Return the number of the one round that is asked for, of the first run or, in their addresses, of more of them.

    Raises:
        FedscopeError: a round that a run does not have; several.
    """
    numbers = [
        parse_rounds(asked or "last", run.rounds, str(run.path), option="--round")
        for run, asked in zip(runs, rounds, strict=False)
        if asked is not None or run is runs[0]
    ]
    first = numbers[0]
    if len(first) > 1:
        raise FedscopeError(f"--round {rounds[0]} names {len(first)} rounds; give one, as in --round {first[-1]}")
    if any(others != first for others in numbers):
        raise FedscopeError(f"these runs name different rounds, but one is asked for; give --round {first[0]} instead")
    return first[0]


def densities(
    runs: Sequence[Run], rounds: Sequence[Round], names: Sequence[str], top: int, seed: int
) -> PreparedAnalysis[Parameters]:
    """Return the densities of single parameters."""
    from .parameter_names import refuse_other_layout

    first = rounds[0]
    for run, round_ in zip(runs[1:], rounds[1:], strict=True):
        refuse_other_layout(first, round_)
        if "global" not in round_.models:
            raise FedscopeError(f"{run.path}@{round_.number} did not record its global model; give another --round")
    if top > MOST:
        raise FedscopeError(f"--top {top} asks for a panel each; take {MOST} at most")
    chosen = tuple(dict.fromkeys(parse_place(name, first.layout) for name in names))

    def prepare() -> SettingsAndCompute[Parameters]:
        settings: dict[str, Any] = {
            "run": [identity(run, [first.number]) for run in runs],
            "round": first.number,
            "parameters": [place.name for place in chosen] or None,
            "top": None if chosen else top,
            "seed": seed,
        }

        def compute(attrs: dict[str, Any], work: Execution) -> Parameters:
            from .parameter_names import read_values, same_starts
            from .selection import most_skewed
            from .summaries import reference

            with work.progress("parameters") as report:
                places = chosen or most_skewed(first, top, report)
            values = [read_values(round_, places, run.name) for run, round_ in zip(runs, rounds, strict=True)]
            about = {**attrs, "size": first.layout.size, "same_start": same_starts(runs, rounds)}
            return Parameters(tuple(place.name for place in places), tuple(values), reference(first, seed), about)

        return settings, compute

    others = "".join(f"-{run.name}" for run in runs[1:])
    what = "".join(f"-{slug_of(place)}" for place in chosen[:3]) + (f"-and-{len(chosen) - 3}" if chosen[3:] else "")
    return single_result(Parameters, runs[0].path / "figures", f"parameters{others}-{first.number}{what}", prepare)


def point_map(run: Run, round_: Round, how: dict[str, Any], device: str, seed: int) -> PreparedAnalysis[ParameterMap]:
    """Return the map of many parameters."""

    def prepare() -> SettingsAndCompute[ParameterMap]:
        where = Compute(device).device if how["backend"] != "sklearn" else "cpu"
        settings = {"run": identity(run, [round_.number]), "round": round_.number, **how, "device": where, "seed": seed}

        def compute(attrs: dict[str, Any], work: Execution) -> ParameterMap:
            from .tsne import map_parameters

            with work.progress("parameters") as report:
                own: dict[str, Any] = {"attrs": attrs, "progress": report}
                return map_parameters(round_, run.name, **how, device=where, seed=seed, **own)

        return settings, compute

    return single_result(ParameterMap, run.path / "figures", f"parameters-tsne-{round_.number}", prepare)


def slug_of(place: ParameterPlace) -> str:
    """A parameter as a part of a file name."""
    return re.sub(r"[^\w.]+", "-", place.name).strip("-")
