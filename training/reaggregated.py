"""Re-aggregations of a recorded round, measured: a result that saves and loads itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..checkpoints import FedscopeError, Weights, write_file
from ..checkpoints.tables import beside, number, read_csv, read_info, write_csv, write_info

FORMAT, VERSION = "fedscope-reaggregate", 1
COLUMNS = (
    *("run", "round", "model", "server", "state", "split", "samples"),
    *("loss", "error", "distance", "identical"),
)


@dataclass(frozen=True)
class ModelRow:
    """One model of a round.

    Attributes:
        model: what it is called: ``recorded``, ``fma``, ``fedsa (classes=5)``.
        server, state: see :class:`~fedscope.training.reaggregating.Reaggregated`; "" of the recorded one.
        loss: mean cross-entropy in nats; error: share misclassified, 0..1.
        distance: ‖w − w_recorded‖ over the parameters, L2; None where the round's ``global`` was not recorded.
        identical: whether parameters and buffers are the recorded ones bit for bit; None alike.
    """

    model: str
    server: str
    state: str
    loss: float
    error: float
    distance: float | None
    identical: bool | None


@dataclass(frozen=True, eq=False)
class Reaggregation:
    """A round as it was aggregated and as other servers would have aggregated it.

    Attributes:
        rows: the recorded model first, then plain FMA, then what was asked for.
        attrs: provenance: run, round, servers, data, split, samples, versions; ``diverged``, the clients by their ids
            whose recorded models are not finite.
        models: the models asked for, by their server's name; empty where it was loaded.
    """

    rows: tuple[ModelRow, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    models: Mapping[str, Weights] = field(default_factory=dict)

    def save(self, base: Path | str) -> list[Path]:
        """Write the models, BASE.safetensors, or BASE.SERVER.safetensors of several, and BASE.reaggregate.csv and
        .json; returns their paths."""
        base = Path(base)
        base.parent.mkdir(parents=True, exist_ok=True)
        files = model_files(base, self.attrs["servers"])
        for file, weights in zip(files, self.models.values(), strict=True):
            write_file(file, weights)
        table, main = (beside(base, suffix) for suffix in (".reaggregate.csv", ".reaggregate.json"))
        about = [Path(self.attrs["run"]["path"]).name, self.attrs["round"]]
        where = [self.attrs["split"], self.attrs["samples"]]
        rows = ([*about, *astuple(row)[:3], *where, *astuple(row)[3:]] for row in self.rows)
        write_csv(table, COLUMNS, rows)
        write_info(main, FORMAT, VERSION, {"attrs": self.attrs})
        return [*files, table, main]

    @classmethod
    def load(cls, base: Path | str) -> Reaggregation:
        """The tables that :meth:`save` wrote, without the models.

        Raises:
            FedscopeError: a file is missing or is no such result.
        """
        base = Path(base)
        table, main = (beside(base, suffix) for suffix in (".reaggregate.csv", ".reaggregate.json"))
        attrs = read_info(main, FORMAT, VERSION, "reaggregate")["attrs"]
        for file in (table, *model_files(base, attrs["servers"])):
            if not file.exists():
                raise FedscopeError(f"{file} does not exist, but {main} does; compute it again with --force")
        return cls(tuple(map(_row, read_csv(table, COLUMNS, "reaggregate"))), attrs)


def model_files(base: Path, servers: Sequence[str]) -> list[Path]:
    """Where the models lie.

    >>> [file.name for file in model_files(Path("made"), ["fedsa", "fedadam"])]
    ['made.fedsa.safetensors', 'made.fedadam.safetensors']
    """
    return [beside(base, f".{server}.safetensors" if len(servers) > 1 else ".safetensors") for server in servers]


def compared(weights: Weights, recorded: Weights | None) -> tuple[float | None, bool | None]:
    """The distance to the recorded model, and whether it is the same bit for bit."""
    if recorded is None:
        return None, None
    with np.errstate(over="ignore", invalid="ignore"):  # of models that diverged
        moved = np.subtract(weights.parameters, recorded.parameters, dtype=np.float64)
    ours, theirs = weights.arrays(), recorded.arrays()
    same = all(ours[name].tobytes() == theirs[name].tobytes() for name in weights.layout.names)
    return float(np.linalg.norm(moved)), same


def _row(row: dict[str, str]) -> ModelRow:
    loss, error = float(row["loss"]), float(row["error"])
    same = row["identical"] == "True" if row["identical"] else None
    return ModelRow(row["model"], row["server"], row["state"], loss, error, number(row["distance"]), same)
