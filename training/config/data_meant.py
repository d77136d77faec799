"""What was typed in the place of a configuration or a run, and is data."""

from __future__ import annotations

from pathlib import Path

from ...checkpoints import FedscopeError, npz_names
from ...checkpoints.io.shell_words import quoted
from ..import_string import is_call
from ..settings.entry_points import installed
from ..settings.registry import names

#: arrays by which an ``.npz`` is one of data, and none of a model
_SAMPLES = frozenset({"x_train", "x_test", "x", "input_ids"})


def data_meant(typed: Path | str) -> str:
    """Return what ``--data`` takes, where this names data: a set, ``npz:`` and a file, or a function; "" elsewhere.

    >>> data_meant("digits"), data_meant("mydata:load"), data_meant("runs/fma"), data_meant("fma.toml")
    ('digits', 'mydata:load', '', '')
    """
    path, text = Path(typed), str(typed)
    shelf = text.partition(":")[0]
    try:
        if path.is_file() and path.suffix.lower() == ".npz":
            return f"npz:{typed}" if _SAMPLES & set(npz_names(path)) else ""
        return text if not path.exists() and (is_call(text) or shelf in (*names("data"), *installed("data"))) else ""
    except (FedscopeError, OSError, ValueError):  # no file of data, or no name that a file can have
        return ""


def refuse_data(typed: Path | str, place: str, flag: str = "--data ") -> None:
    """Refuse data in the place of something else.

    Args:
        place: what is to stand there, "not a configuration"; flag: what data go behind.

    Raises:
        FedscopeError: data; says how to give them.
    """
    if meant := data_meant(typed):
        raise FedscopeError(f"{typed} is a data set, {place}; give {flag}{quoted(meant)}")
