"""Models that lie beside a result's tables, each in a file of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..checkpoints import FedscopeError, Weights
from ..checkpoints.io.untrusted import expand_home
from ..checkpoints.models.files import write_computed
from ..checkpoints.models.stored_models import StoredModels
from .tables import add_suffix


def write_models(base: Path | str, suffixes: Iterable[str], models: Iterable[Weights]) -> list[Path]:
    """Write one model behind each suffix of BASE; returns their paths."""
    base = expand_home(base)
    base.parent.mkdir(parents=True, exist_ok=True)
    files = [add_suffix(base, suffix) for suffix in suffixes]
    for file, weights in zip(files, models, strict=True):
        write_computed(file, weights)
    return files


def stored_models(main: Path, end: str, suffixes: Iterable[str], names: Sequence[str]) -> Mapping[str, Weights]:
    """Return models that lie beside a result, by their names; each is read when it is used.

    Args:
        main: the file that says what the result is; end: what stands behind its base.
        suffixes: those of the models' files, in the order of their names.

    Raises:
        FedscopeError: a file is missing.
    """
    stem = main.with_name(main.name.removesuffix(end))
    files = [add_suffix(stem, suffix) for suffix in suffixes]
    for file in files:
        if not file.exists():
            raise FedscopeError(f"{file} does not exist, but {main} does; compute it again with --force")
    return StoredModels(dict(zip(names, files, strict=True)))
