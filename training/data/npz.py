"""``npz:PATH``: the user's own arrays in one NumPy file."""

from __future__ import annotations

from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from ...checkpoints import FedscopeError
from ..dataset import Dataset, standardised


def load(argument: str) -> Dataset:
    """``x_train, y_train, x_test, y_test``; see :func:`fedscope.training.dataset.standardised` for shapes and types."""
    path = Path(argument).expanduser()
    if not argument or not path.is_file():
        raise FedscopeError(f"--data npz:{argument}: there is no such file; give the path of an .npz")
    path = path.resolve()
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in stored.files}
    except (ValueError, OSError, EOFError, BadZipFile, AttributeError) as error:
        raise FedscopeError(f"--data npz:{argument} is not a readable .npz of plain arrays ({error})") from error
    return standardised(f"npz:{path}", str(path), arrays)


PROVIDES = load
