"""BASE.sharpness.csv, BASE.spectrum.csv and BASE.sharpness.json: a result at rest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...checkpoints import FedscopeError
from ...checkpoints.tables import beside, number, read_csv, read_info, write_csv, write_info

if TYPE_CHECKING:
    from .result import Sharpness

FORMAT, VERSION = "fedscope-sharpness", 1
COLUMNS = ("run", "round", "model", "split", "samples", "measure", "radius", "value", "stderr")
SPECTRUM_COLUMNS = ("run", "round", "model", "eigenvalue", "density")


def write_tables(result: Sharpness, base: Path) -> list[Path]:
    """Write the files durably, BASE.sharpness.json last, so that a result that can be loaded is whole."""
    table, spectrum, main = (beside(base, suffix) for suffix in (".sharpness.csv", ".spectrum.csv", ".sharpness.json"))
    table.parent.mkdir(parents=True, exist_ok=True)
    measured_on = result.attrs.get("split"), result.attrs.get("samples")
    write_csv(
        table,
        COLUMNS,
        (
            (model.run, model.round, model.model, *measured_on, one.name, one.radius, one.value, one.stderr)
            for model, one in result.rows()
        ),
    )
    with_spectrum = [model for model in result.models if model.spectrum is not None]
    if with_spectrum:
        write_csv(
            spectrum,
            SPECTRUM_COLUMNS,
            (
                (model.run, model.round, model.model, eigenvalue, density)
                for model in with_spectrum
                if model.spectrum is not None
                for eigenvalue, density in zip(
                    model.spectrum.eigenvalue.tolist(), model.spectrum.density.tolist(), strict=True
                )
            ),
        )
    else:
        spectrum.unlink(missing_ok=True)  # an earlier result's
    info = {
        "models": [
            {"run": model.run, "round": model.round, "model": model.model, "spectrum": model.spectrum is not None}
            for model in result.models
        ],
        "attrs": result.attrs,
    }
    write_info(main, FORMAT, VERSION, info)
    return [table, *([spectrum] if with_spectrum else []), main]


def read_tables(base: Path) -> Sharpness:
    """Read what :func:`write_tables` wrote."""
    from .result import Curvature, Measure, Sharpness, Spectrum

    info = read_info(_there(base, ".sharpness.json"), FORMAT, VERSION, "sharpness")
    measures: dict[tuple[str, str, str], list[Measure]] = {}
    for row in read_csv(_there(base, ".sharpness.csv"), COLUMNS, "sharpness"):
        value, radius, stderr = (number(row[name]) for name in ("value", "radius", "stderr"))
        measures.setdefault((row["run"], row["round"], row["model"]), []).append(
            Measure(row["measure"], value, radius, stderr)
        )
    points: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    if any(one["spectrum"] for one in info["models"]):
        for row in read_csv(_there(base, ".spectrum.csv"), SPECTRUM_COLUMNS, "sharpness"):
            key = row["run"], row["round"], row["model"]
            points.setdefault(key, []).append((float(row["eigenvalue"]), float(row["density"])))
    models = []
    for one in info["models"]:
        key = one["run"], "" if one["round"] is None else str(one["round"]), one["model"]
        spectrum = Spectrum(*np.array(points[key]).T) if one["spectrum"] else None
        models.append(Curvature(one["run"], one["round"], one["model"], tuple(measures.get(key, ())), spectrum))
    return Sharpness(tuple(models), info["attrs"])


def _there(base: Path, suffix: str) -> Path:
    path = beside(base, suffix)
    if not path.exists():
        raise FedscopeError(
            f"{path} does not exist: a result of sharpness is {base.name}.sharpness.csv, {base.name}.sharpness.json "
            f"and, where a density was asked for, {base.name}.spectrum.csv; compute it again with --force"
        )
    return path
