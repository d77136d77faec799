"""One way for every analysis to compute, keep, draw again and refuse to overwrite."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

from .differences import differences
from .options import Output

#: what a figure is written as; a page that can be turned besides
FIGURE, PAGE = ("pdf", "png"), ("pdf", "png", "html")


class Result(Protocol):
    """What an analysis returns: it knows the settings it was made with."""

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Provenance."""
        ...


R = TypeVar("R", bound=Result)


def obtain(
    compute: Callable[[dict[str, Any], Path], R],
    load: Callable[[Path], R],
    save: Callable[[R], Any],
    file: Path,
    settings: dict[str, Any],
    output: Output,
    also: Sequence[Path] = (),
) -> R:
    """The result of these settings: read back where ``file`` holds it, else computed and saved.

    Args:
        compute: given the provenance and the path of the store for what is computed so far.
        file: the result's main file, by which one knows whether it exists.
        also: what else is written, tables and figures.

    Raises:
        FedscopeError: ``--redraw`` without a result; another result, or a foreign file, in the way.
    """

    def compute_one(attrs: list[dict[str, Any]], partial: Path) -> list[R]:
        return [compute(attrs[0], partial)]

    return obtain_all(compute_one, load, lambda made, _: save(made), [file], [settings], output, also)[0]


def obtain_all(
    compute: Callable[[list[dict[str, Any]], Path], list[R]],
    load: Callable[[Path], R],
    save: Callable[[R, Path], Any],
    files: Sequence[Path],
    settings: Sequence[dict[str, Any]],
    output: Output,
    also: Sequence[Path] = (),
) -> list[R]:
    """Results that are computed together, each in a file of its own; see :func:`obtain`.

    Raises:
        FedscopeError: ``--redraw`` where one is missing; another result, or a foreign file, in the way.
    """
    from ..checkpoints import FedscopeError, versions

    settings = [json.loads(json.dumps(one)) for one in settings]
    missing = [file for file in files if not file.exists()]
    if output.redraw:
        if missing:
            raise FedscopeError(f"{missing[0]} does not exist, so there is nothing to draw again; leave out --redraw")
        return [_loaded(load, file) for file in files]
    if not output.force:
        for file, own in zip(files, settings, strict=True):
            kept = _loaded(load, file).attrs if file.exists() else {}
            changed = _changed(kept, own) if file.exists() else []
            if changed:
                what = differences({**UNSAID, **kept}, own, changed)
                raise FedscopeError(
                    f"{file} holds another result, of {what}; give another --out, or --force to replace it"
                )
        if not missing:
            click.echo(
                f"fedscope: {files[0]} holds this result already; drawn again (--force computes it anew)", err=True
            )
            return [_loaded(load, file) for file in files]
    partial = files[0].with_name(f"{files[0].name}.partial")
    if not partial.exists():  # else it was interrupted, perhaps between two of its files
        refuse_taken(files, also, output)
    for file in files:
        refuse_unwritable(file)
    results = compute([{**own, "versions": versions()} for own in settings], partial)
    for result, file in zip(results, files, strict=True):
        save(result, file)
    partial.unlink(missing_ok=True)
    return results


def _loaded(load: Callable[[Path], R], file: Path) -> R:
    """A result read back; whatever its files hold that no result does, one sentence says so."""
    from csv import Error as NoTable

    from ..checkpoints import FedscopeError

    try:
        return load(file)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, NoTable) as error:
        said = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise FedscopeError(
            f"{file}, or a file beside it, is damaged ({said}); compute it again with --force"
        ) from error


#: what results from before an option existed say of it by their silence
UNSAID = {"kind": "models", "normalization": "interpolate"}


#: what a result says only where it is not the usual: asked for by silence, too
ONLY = ("task",)
#: said for the reader only: the models' sums tell what they are
SAID_ONLY = {"models_read"}


def _changed(kept: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    asked = {key: None for key in ONLY if key in kept} | {
        key: value for key, value in settings.items() if key not in SAID_ONLY
    }
    return [key for key, value in asked.items() if not _same(key, kept.get(key, UNSAID.get(key)), value)]


def _same(key: str, kept: Any, asked: Any) -> bool:
    """Equal; what a module answers, measured on another machine perhaps, up to single precision; a run by what tells it
    from others, whichever way to its folder was typed."""
    if key == "run":
        return bool(_placeless(kept) == _placeless(asked))
    if key not in ("behaviour", "task_behaviour") or kept is None or asked is None:
        return bool(kept == asked)
    close = (math.isclose(x, y, rel_tol=1e-3, abs_tol=1e-4) for x, y in zip(kept, asked, strict=False))
    return len(kept) == len(asked) and all(close)


def _placeless(run: Any) -> Any:
    if isinstance(run, list):
        return [_placeless(one) for one in run]
    return {**run, "path": Path(run["path"]).resolve().name} if isinstance(run, dict) and "path" in run else run


def refuse_taken(files: Sequence[Path], also: Sequence[Path], output: Output) -> None:
    """Keep what lies where tables and figures will be written and no result beside it says that it is its own.

    Args:
        files: the results' main files; where one exists, what lies beside it is known to be fedscope's.

    Raises:
        FedscopeError: such a file, and no ``--force``.
    """
    from ..checkpoints import FedscopeError

    if output.force or any(file.exists() for file in files):
        return
    for path in also:
        if path.exists():
            raise FedscopeError(
                f"{path} is in the way, and without {files[0]} it is not known what it holds; give another --out, or "
                "--force to replace it"
            )


def kinds(base: Path, *ends: str) -> list[Path]:
    """Files of one name.

    >>> [path.name for path in kinds(Path("a/x"), "factors.csv", *FIGURE)]
    ['x.factors.csv', 'x.pdf', 'x.png']
    """
    return [Path(f"{base}.{end}") for end in ends]


def refuse_unwritable(file: Path) -> None:
    """Say before computing that the result could not be kept.

    Raises:
        FedscopeError: its folder is no folder, or may not be written to.
    """
    import os

    from ..checkpoints import FedscopeError

    folder = file.absolute().parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise FedscopeError(f"{file} cannot be written, because {folder} cannot be written to; give another --out")


def figures(base: Path, figure: Any, page: str | None = None) -> list[Path]:
    """Write ``BASE.pdf`` and ``BASE.png``, and ``BASE.html`` for what can be turned."""
    from ..landscape import save_figure

    written = list(save_figure(figure, base))
    if page is not None:
        written.append(write_page(base, page))
    return written


def write_page(base: Path, page: str) -> Path:
    """Write ``BASE.html``."""
    from ..checkpoints import write_durably

    path = Path(f"{base}.html")
    with write_durably(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def say(sentence: str, written: list[Path], *, as_json: bool, **numbers: Any) -> None:
    """Print what was found and where it lies."""
    if as_json:
        click.echo(json.dumps(plain({**numbers, "files": [str(path) for path in written]})))
        return
    click.echo(sentence)
    for path in written:
        click.echo(f"  {path}")


def precision_words(attrs: Mapping[str, Any]) -> str:
    """What a lower precision costs, measured on the models themselves; nothing in float32."""
    if "precision_error" not in attrs:
        return ""
    return f"; {attrs['precision']} is off float32 by {attrs['precision_error']:.1e} in loss at most on these models"


def plain(value: Any) -> Any:
    """What strict readers of JSON take: NaN and infinities become null.

    >>> plain({"loss": [1.5, float("nan")]})
    {'loss': [1.5, None]}
    """
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
