"""What ``fedscope disperse`` asks: rounds, their dispersion, and the layers that are looked into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..checkpoints import Partial, Run
    from ..decomposition.dispersion import LayerMap, RoundDispersion


def refuse_unequal(runs: Sequence[Run], layers: Sequence[str]) -> None:
    """Refuse what no common table could hold, before anything is read.

    Raises:
        FedscopeError: two runs of different layouts; a layer that is no parameter.
    """
    from ..checkpoints import FedscopeError
    from ..checkpoints.errors import listed, nearest

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
            hint = nearest(layer, known) or f"; it has {listed(known)}"
            raise FedscopeError(f"--layer {layer}: {runs[0].path} has no such parameter{hint}")


def asked_rounds(runs: Sequence[Run], rounds: str | None) -> list[tuple[Run, int]]:
    """Every round of every run.

    Raises:
        FedscopeError: a round that a run does not have; without clients, or with only one.
    """
    from ..asking.runs import client_rounds
    from ..decomposition.dispersion import count_clients

    asked = [(run, number) for run in runs for number in client_rounds(run, rounds)]
    for run, number in asked:
        count_clients(run.round(number))
    return asked


def dispersed(asked: Sequence[tuple[Run, int]], fdr: float, store: Partial, device: str) -> tuple[RoundDispersion, ...]:
    """Every round's dispersion; finished rounds are kept in ``store``."""
    from ..decomposition.dispersion import RoundDispersion, disperse_round
    from .progress import progress, within

    expected, before = sum(run.layout.size for run, _ in asked), 0
    done: list[RoundDispersion] = []
    with progress("disperse") as report:
        for run, number in asked:
            key = f"{run.path}@{number}"
            if key not in store.done:
                told = within(report, before, expected)
                found = disperse_round(run.round(number), run=run.name, fdr=fdr, device=device, progress=told)
                store.add(key, found.to_json())
            done.append(RoundDispersion.from_json(store.done[key]))
            before += run.layout.size
            report(before, expected)
    return tuple(done)


def looked_into(asked: Sequence[tuple[Run, int]], layers: Sequence[str]) -> dict[str, tuple[Run, int]]:
    """Of every run the last round of three clients or more, in which layers are looked into; by the run's name.

    Raises:
        FedscopeError: layers were asked for, and a run has no such round.
    """
    from ..checkpoints import FedscopeError

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
    deep: Mapping[str, tuple[Run, int]], rounds: Sequence[RoundDispersion], layers: Sequence[str]
) -> tuple[LayerMap, ...]:
    """The layers asked for, or else the most skewed one of the first run, in the rounds of ``deep``."""
    from ..decomposition.dispersion import map_layer, most_skewed

    if not deep:
        return ()
    first = next((run.name, number) for run, number in deep.values())
    found = most_skewed(next(one for one in rounds if (one.run, one.round) == first))
    chosen = [*dict.fromkeys(layers)] or ([found] if found else [])
    return tuple(map_layer(run.round(number), name, run=run.name) for name in chosen for run, number in deep.values())


def default_base(runs: Sequence[Run], rounds: str | None, layers: Sequence[str], fdr: float) -> Path:
    """``RUN/figures/disperse-<what>``, where what is not the default is part of the name."""
    from ..asking.names import fitting, slug

    words = [
        *(run.name for run in runs[1:]),
        slug(rounds or "1,last"),
        *layers,
        *([] if fdr == 0.05 else [f"fdr{fdr:g}"]),
    ]
    return runs[0].path / "figures" / f"disperse-{fitting('-'.join(words))}"
