"""Analysis: the differences between the clients of a round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...analysis.analysis import (
    PreparedAnalysis,
    SettingsAndCompute,
    analysis,
    fit_file_name,
    single_result,
    slug_rounds,
)
from ...analysis.execution import ROUNDS, Execution, Report, WorkUnit
from ...analysis.rounds import Rounds, larger_cohort, rounds_of_several
from ...analysis.run_identity import identities
from ...analysis.runs import RunLike, resolve_runs
from ...checkpoints import FedscopeError, Run, nearest
from ...checkpoints.io.errors import list_few
from ...checkpoints.io.number_words import exact
from ...checkpoints.models.layer_selections import layers_file_word
from ...checkpoints.models.layers import named_parameters
from ...evaluation.device import Compute
from .dispersion import refuse_rate
from .result import Dispersion, RoundDispersion
from .skew_maps import LayerMap


@analysis
def disperse(
    runs: RunLike | Sequence[RunLike],
    *,
    rounds: Rounds = None,
    layers: str | Sequence[str] = (),
    fdr: float = 0.05,
    device: str = "auto",
) -> PreparedAnalysis[Dispersion]:
    """Measure how the clients of a round differ: dispersion and skewness of every parameter over clients, by layer.

    Of every parameter the coefficient of variation σ/|μ| (cv), skewness and excess kurtosis over the clients; from 8
    clients on the share whose skewness D'Agostino's test rejects. See
    :func:`~fedscope.decomposition.dispersion.dispersion.disperse_round` for the formulas.

    Args:
        runs: one, or several of one layout; ``RUN@60`` is a run with ``rounds=60``.
        rounds: which, or ``all`` with their clients, the first and last of these by default; of several, those of one
            client are left out.
        layers: parameters, by their ``state_dict`` keys, or layers by name or pattern (``conv*``, ``/^blocks/``), all
            of whose parameters are meant, to look into in the last of the rounds; by default the most
            skewed.
        fdr: false discovery rate of the test of skewness, within a layer and over the model.
        device: where the statistics are computed.

    Raises:
        FedscopeError: rounds, clients or layers that there are not; runs of different layouts; a rate out of range.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> [one.round for one in fedscope.disperse(run).rounds]
    [1, 2]
    >>> folder.cleanup()
    """
    refuse_rate(fdr)
    opened, asked_rounds = resolve_runs(runs, rounds, adapters="numbers")
    given = [layers] if isinstance(layers, str) else list(layers)
    names = named_parameters(opened[0].layout, given)
    refuse_unequal(opened, names)
    found = [rounds_of_several(*each, "has no dispersion") for each in zip(opened, asked_rounds, strict=True)]
    asked = [(run, number) for run, (numbers, _) in zip(opened, found, strict=True) for number in numbers]
    notes = [note for _, said in found for note in said]
    for run, number in asked:
        if len(run.round(number).client_ids) < 2:
            raise FedscopeError(f"{run.path}@{number} has 1 client, so there is no dispersion; {larger_cohort(run)}")
    deep = looked_into(asked, names)

    def prepare() -> SettingsAndCompute[Dispersion]:
        where = Compute(device)
        settings: dict[str, Any] = {
            "run": identities(opened, asked),
            "rounds": [[run.name, number] for run, number in asked],
            "layers": names,
            "fdr": fdr,
            "device": where.device,
        }

        def task(run: Run, number: int) -> WorkUnit[RoundDispersion]:
            def measure(report: Report) -> RoundDispersion:
                from .dispersion import disperse_round

                return disperse_round(run.round(number), run=run.name, fdr=fdr, compute=where, progress=report)

            return WorkUnit(f"{run.path}@{number}", RoundDispersion, measure, run.layout.size)

        def compute(attrs: dict[str, Any], work: Execution) -> Dispersion:
            with work.store(settings, *ROUNDS, "layers") as store:
                measured = work.each("disperse", (task(*each) for each in asked), store)
            said: dict[str, Any] = {"left_out": notes} if notes else {}
            said |= {"words": given} if given else {}
            return Dispersion(tuple(measured), fdr, maps_of(deep, measured, names), {**attrs, **said})

        return settings, compute

    rate = [] if fdr == 0.05 else [f"fdr{exact(fdr)}"]
    words = [
        *(run.name for run in opened[1:]),
        slug_rounds(asked_rounds[0] or "1,last"),
        *map(layers_file_word, given),
        *rate,
    ]
    return single_result(Dispersion, opened[0].path / "figures", f"disperse-{fit_file_name('-'.join(words))}", prepare)


def refuse_unequal(runs: Sequence[Run], layers: Sequence[str]) -> None:
    """Refuse what no common table could hold, before anything is read.

    Raises:
        FedscopeError: two runs of different layouts; a layer that is no parameter.
    """
    for run in runs[1:]:
        difference = runs[0].layout.difference(run.layout)
        if difference is not None:
            raise FedscopeError(
                f"{runs[0].path} and {run.path} trained different models, whose layers have no common rows "
                f"({difference}); ask for one of them at a time"
            )
    known = list(runs[0].layout.slices)
    for layer in layers:
        if layer not in known:
            hint = nearest(layer, known) or f"; it has {list_few(known)}"
            raise FedscopeError(f"--layer {layer}: {runs[0].path} has no such parameter{hint}")


def looked_into(asked: Sequence[tuple[Run, int]], layers: Sequence[str]) -> dict[str, tuple[Run, int]]:
    """Find every run's last round of three clients or more, in which layers are looked into; by the run's name.

    Raises:
        FedscopeError: layers were asked for, and a run has no such round.
    """
    deep = {run.name: (run, number) for run, number in asked if len(run.round(number).client_ids) >= 3}
    for run, number in asked:
        if layers and run.name not in deep:
            clients = len(run.round(number).client_ids)
            raise FedscopeError(
                f"--layer {layers[0]}: {run.path}@{number} has {clients} clients, and skewness begins at 3; ask for "
                "other rounds, or leave it out"
            )
    return deep


def maps_of(
    deep: dict[str, tuple[Run, int]], rounds: Sequence[RoundDispersion], layers: Sequence[str]
) -> tuple[LayerMap, ...]:
    """Return the layers asked for, or else the most skewed one of the first run, in the rounds of ``deep``."""
    from .skew_maps import map_layer

    if not deep:
        return ()
    first = next((run.name, number) for run, number in deep.values())
    most = next(measured for measured in rounds if (measured.run, measured.round) == first).most_skewed()
    chosen = [*dict.fromkeys(layers)] or ([most] if most else [])
    return tuple(map_layer(run.round(number), name, run=run.name) for name in chosen for run, number in deep.values())
