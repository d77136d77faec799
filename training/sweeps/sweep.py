"""``sweep``: many runs in one folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...checkpoints import FedscopeError, Run
from ..config import read_toml
from ..recipe_files import Cell
from ..setup import Setup
from .axes import checked_seeds
from .plan import FILE, Plan, planned, read_plan
from .running import SweepWatcher, rounds_of, train_sweep
from .steps import RUNS


@dataclass(frozen=True)
class Sweep:
    """A sweep's folder.

    Attributes:
        path: of the folder; plan: what it is to hold.
        failures: of the runs that failed when it was trained last, by name, their sentences.
    """

    path: Path
    plan: Plan
    failures: Mapping[str, str]

    @classmethod
    def open(cls, path: Path | str) -> Sweep:
        """A sweep that is there.

        Raises:
            FedscopeError: no sweep, or a damaged plan.
        """
        return cls(Path(path), read_plan(Path(path)), {})

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs that are complete, in the order of the plan."""
        return tuple(Run.open(self.path / RUNS / run.name) for run in self.plan.runs if self._is_complete(run.name))

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the runs that are not complete."""
        return tuple(run.name for run in self.plan.runs if not self._is_complete(run.name))

    def _is_complete(self, name: str) -> bool:
        done = rounds_of(self.path, name)
        return done is not None and done >= self.plan.of(name).config.run.rounds


def sweep(
    axes: Mapping[str, Sequence[Any]] | Sequence[Sequence[Cell]] = (),
    *,
    out: Path | str,
    recipe: str = "",
    config: Path | str | Mapping[str, Mapping[str, Any]] | None = None,
    scale: float | None = None,
    seeds: Sequence[int] = (),
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    share: bool = True,
    watcher: SweepWatcher | None = None,
) -> Sweep:
    """Train a run for every combination of settings, or go on with what is there of them.

    Each run is trained in a process of its own. One that fails is named, and the others go on.

    Args:
        axes: what is varied, as in ``{"method": ["fma", "ima"], "run.participation": [0.1, 0.2]}``; or axes of cells,
            each a mapping of several settings. Without any what the recipe varies.
        out: the sweep's folder: new, or with the same plan.
        recipe: a paper's set-up; config: or a ``.toml`` file or its tables; neither for the defaults of ``train``.
        scale: of the recipe or the configuration, see :func:`~fedscope.training.scaling.scaled`.
        seeds: each sets ``run.seed`` and ``data.seed``.
        settings: tables of settings of all runs.
        share: train once what several runs have in common, see
            :func:`~fedscope.training.sweeps.sharing.shared_histories`.

    Raises:
        FedscopeError: what :func:`~fedscope.training.sweeps.plan.planned` refuses; an ``out`` that holds something
            else.
        KeyboardInterrupt: passed on; the same call goes on.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     small = {"data": {"clients": 4}, "run": {"rounds": 2, "participation": 0.5}}
    ...     made = sweep({"method": ["fma", "fedavgm"]}, settings=small, out=folder)
    ...     [run.name for run in made.runs], dict(made.failures)
    (['fma', 'fedavgm'], {})
    """
    stored = {} if config is None else dict(config) if isinstance(config, Mapping) else read_toml(Path(config))
    chosen: Sequence[Sequence[Cell]] = (
        [[{key: value} for value in values] for key, values in axes.items()] if isinstance(axes, Mapping) else axes
    )
    plan = planned(Setup(recipe, stored, scale), chosen, checked_seeds(seeds), settings, share=share)
    return train_plan(plan, Path(out), watcher)


def train_plan(plan: Plan, out: Path, watcher: SweepWatcher | None = None) -> Sweep:
    """Make a folder a sweep, or go on with the same one.

    Raises:
        FedscopeError: the folder holds something else, or another sweep.
    """
    if (out / FILE).exists():
        there = read_plan(out)
        if there.runs != plan.runs:
            raise FedscopeError(
                f"{out} holds another sweep{_difference(there, plan)}; give another --out, or --resume it"
            )
        plan = there
    elif out.exists() and (not out.is_dir() or any(path.name != ".writer" for path in out.iterdir())):
        raise FedscopeError(f"{out} exists and is no sweep; give another --out")
    else:
        plan.write(out)
    return Sweep(out, plan, train_sweep(plan, out, watcher))


def _difference(there: Plan, asked: Plan) -> str:
    """In which run two plans differ first."""
    theirs = {run.name for run in there.runs}
    for run in asked.runs:
        if run.name not in theirs:
            return f", without {run.name}"
    return f", of {len(there.runs)} runs, not {len(asked.runs)}" if len(there.runs) != len(asked.runs) else ""
