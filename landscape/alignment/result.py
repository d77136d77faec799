"""Networks brought into one order of their units: how far they moved, and what their mean is worth before and after."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import Any, Self

from ...checkpoints import Weights
from ...checkpoints.io.errors import list_few
from ...checkpoints.models.stored_models import RenamedModels
from ...results import Serializable, Table, TableResult, columns_of
from ...results.labels import name_of_run, names_in
from ...results.models_beside import stored_models, write_models


@dataclass(frozen=True)
class MovedRow(Serializable):
    """Units of one layer of one model.

    Attributes:
        model: its label, ``ima@40/client-3``; files and ``--json`` call a run's client ``ROUND/client-K``.
        layer: the parameter after which the group of units is called.
        units: how many there are; moved: how many of them another place would suit better.
    """

    model: str
    layer: str
    units: int
    moved: int


@dataclass(frozen=True)
class AverageRow(Serializable):
    """A model, or a mean of all.

    Attributes:
        model: its label, or ``mean``, ``mean of aligned``, ``mean repaired``.
        loss: mean loss; error: share misclassified, 0..1, NaN where the task has none.
        barrier: of a mean its loss less the models' mean loss, on the same samples; None of a model.
        stderr: of that, over samples.
    """

    model: str
    loss: float
    error: float
    barrier: float | None
    stderr: float | None


@dataclass(frozen=True, eq=False)
class Alignment(TableResult):
    """How the units of models move when they are brought into the order of the first, and what their mean is worth.

    Attributes:
        moved: a row a model and layer, without the reference.
        averages: of given models: each of them, then the means; none of a run's clients.
        attrs: provenance; ``by`` and ``to`` are how units were matched, ``stopped`` the operations that could not be
            followed, ``reference`` the model that stays, ``unrepaired`` the layers that not all networks run, which the
            repaired mean has as the mean does.
        models: the aligned models by their labels, and last the repaired mean, as ``repaired`` if no model is called
            so; none where it was loaded.
    """

    command = "align"
    suffixes = (".moved.csv", ".averages.csv", ".align.json")
    alongside = (".safetensors",)
    format = "fedscope-align"
    tables = (Table(".moved.csv", columns_of(MovedRow)), Table(".averages.csv", columns_of(AverageRow)))

    moved: tuple[MovedRow, ...]
    averages: tuple[AverageRow, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    models: Mapping[str, Weights] = field(default_factory=dict)

    def rows(self) -> list[Any]:
        """BASE.moved.csv, a row a model and layer; BASE.averages.csv, a row a model or mean."""
        return [[astuple(row) for row in self._kept()], [astuple(row) for row in self.averages]]

    @property
    def of_run(self) -> str:
        """The run whose rounds' clients were aligned; "" of given models."""
        said = self.attrs.get("run")
        return name_of_run(said[0]) if self.attrs.get("rounds") and isinstance(said, list) and said else ""

    def _kept(self) -> list[MovedRow]:
        """Rows of moved units as files have them, a run's clients without it."""
        before = f"{self.of_run}@" if self.of_run else ""
        return [replace(row, model=row.model.removeprefix(before)) for row in self.moved]

    def head(self) -> dict[str, Any]:
        """Return nothing: the provenance says it all."""
        return {}

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        """Build the result from what :meth:`rows` gave, without the models."""
        moved, averages = tables
        made = cls(tuple(MovedRow(**row) for row in moved), tuple(AverageRow(**row) for row in averages), head["attrs"])
        if not (run := made.of_run):
            return made
        return replace(made, moved=tuple(replace(row, model=_with_run(run, row.model)) for row in made.moved))

    def save(self, base: Path | str) -> list[Path]:
        """Write the models, BASE.0.safetensors, BASE.1.safetensors, ... and BASE.repaired.safetensors, and the tables;
        returns their paths."""
        files = write_models(base, model_suffixes(len(self.models) - 1), self.models.values())
        return [*files, *super().save(base)]

    @classmethod
    def load(cls, base: Path | str) -> Self:
        """Read the tables that :meth:`save` wrote; the models are read when they are used.

        Raises:
            FedscopeError: a file is missing, damaged, no such result, or does not fit the others.
        """
        result, main = super().load(base), cls.paths(base)[-1]
        if not (count := int(result.attrs.get("aligned", 0))):
            return result
        labels = [row.model for row in result.averages[:count]]
        labels.append(label_of_repaired(labels))
        return replace(result, models=stored_models(main, cls.suffixes[-1], model_suffixes(count), labels))

    @classmethod
    def runs_named(cls, settings: Mapping[str, Any]) -> frozenset[str]:
        """None are known: the clients of a round may be named without their run, as in its tables."""
        return frozenset()

    def list_names(self) -> tuple[str, ...]:
        """List the models that were given, in their order: the first is the one that stays, which no row of moved
        units names."""
        return tuple(dict.fromkeys([*names_in(self.averages), *names_in(self.moved)]))

    def renamed(self, labels: Mapping[str, str]) -> Self:
        """Rename the models in the tables, in what the reference is called, and of the aligned models; see
        :meth:`~fedscope.results.Result.renamed`. A round's client may be named as its table names it."""
        if self.of_run and isinstance(labels, Mapping):
            labels = {_with_run(self.of_run, name): label for name, label in labels.items()}
        made = super().renamed(labels)
        names = dict(zip(self.list_names(), made.list_names(), strict=True))
        before = self.attrs.get("reference", "")
        attrs = {**made.attrs, "reference": names.get(before, before)}
        return replace(made, attrs=attrs, models=RenamedModels(self.models, names))

    def shares(self) -> dict[str, float]:
        """Return the share of units that move, by layer, over all models."""
        total: dict[str, list[int]] = {}
        for row in self.moved:
            held = total.setdefault(row.layer, [0, 0])
            held[0] += row.moved
            held[1] += row.units
        return {layer: moved / units for layer, (moved, units) in total.items()}

    def summary(self) -> str:
        """Say how many units move, and what the means are worth."""
        units, moved = sum(row.units for row in self.moved), sum(row.moved for row in self.moved)
        shares = self.shares()
        most = max(shares, key=lambda layer: shares[layer])
        models = list(dict.fromkeys(row.model for row in self.moved))
        of = f" of {self.of_run}" if self.of_run else ""
        who = f"{len(models)} models{of}" if len(models) > 1 else models[0]
        begin = f"{100 * moved / units:.3g} % of {units:,} units of {who} move"
        if moved:
            begin += f", most in {most} ({100 * shares[most]:.3g} %)"
        lines = [f"{begin}; matched by {self.attrs.get('by')} to {self.attrs.get('reference')}"]
        for row in self.averages:
            if row.barrier is None:
                continue
            error = f", error {100 * row.error:.3g} %" if row.error == row.error else ""
            spread = "" if row.stderr is None else f" ± {1.96 * row.stderr:.2g}"
            above = f"barrier {row.barrier:+.3g}{spread}"
            lines.append(f"  {row.model}: loss {row.loss:.3g}{error}, {above}")
        if any(row.stderr is not None for row in self.averages):
            lines.append("  barrier: the loss less the models' mean loss, on the same samples (± 1.96 standard errors)")
        lines += [f"  units stay that {said} takes, which is not followed" for said in self.attrs.get("stopped", ())]
        if left := self.attrs.get("unrepaired"):
            lines.append(f"  not repaired: {list_few(left)}, which not every model and their mean run")
        if self.averages and self._is_bad():
            lines.append(
                "  the repaired mean is still much worse than the models: their layers are narrow, or they differ"
            )
        return "\n".join(lines)

    def _is_bad(self) -> bool:
        """Whether even the best mean has more loss than the models, by half of theirs and beyond its interval; a loss
        may be below 0, where half as much again would be less."""
        own = [row.loss for row in self.averages if row.barrier is None]
        means = [row for row in self.averages if row.barrier is not None and isfinite(row.loss)]
        if not own or not means:
            return False
        best = min(means, key=lambda row: row.loss)
        usual = sum(own) / len(own)
        return best.loss - usual > max(0.5 * abs(usual), 1.96 * (best.stderr or 0.0))

    def findings(self) -> dict[str, Any]:
        """Return the tables."""
        return {"moved": [vars(row) for row in self._kept()], "averages": [vars(row) for row in self.averages]}


def _with_run(run: str, model: str) -> str:
    """The name that a round's client has everywhere, of that in a table; a label of its own as it is."""
    return f"{run}@{model}" if re.match(r"[0-9]+/", model) else model


def model_suffixes(count: int) -> tuple[str, ...]:
    """Return the ends of the names of ``count`` aligned models and the repaired mean; none of none.

    >>> model_suffixes(2)
    ('.0.safetensors', '.1.safetensors', '.repaired.safetensors')
    """
    if count < 0:
        return ()
    return (*(f".{k}.safetensors" for k in range(count)), ".repaired.safetensors")


def label_of_repaired(labels: Sequence[str]) -> str:
    """Return what the repaired mean is called beside models of these labels.

    >>> label_of_repaired(["a.pt", "b.pt"]), label_of_repaired(["a.pt", "repaired"])
    ('repaired', 'mean repaired')
    """
    label = "repaired"
    while label in labels:
        label = f"mean {label}"
    return label


def labels_of_means() -> Sequence[str]:
    """The means, in the order of the table."""
    return ("mean", "mean of aligned", "mean repaired")
