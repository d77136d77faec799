"""The steps of every command about results: obtain the answer, draw it, say it, and overwrite nothing."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..analysis.execution import Execution
from ..analysis.run_identity import METRICS, has_grown, is_same_run
from ..analysis.settings import is_same_setting
from ..checkpoints import FedscopeError, write_durably
from ..checkpoints.io.errors import list_few
from ..checkpoints.io.safe_write import ELSEWHERE, refuse_linked, refuse_strange
from ..checkpoints.io.warn_user import warn_user
from ..results import lock_result, make_visible, plain
from ..results.answers import same_answers
from ..results.collection import ends_at, of_replaced, others_in, placed, says_others
from ..results.labels import labels_of
from .option_types import Formats, InFolder
from .options import Output, base_of
from .printing import say, say_json, say_lines
from .progress import progress
from .redraw import refuse_another
from .settings_diff import differences
from .streams import say_if_unprinted

if TYPE_CHECKING:
    from ..analysis.analysis import PreparedAnalysis, Step
    from ..results import Result, ResultLock
    from ..training.jobs.blocks import Blocks

    A = TypeVar("A", bound=Result)

#: what a result says only where it is not the usual: asked for by silence, too
ONLY = (
    "task",
    "data_accepted",
    "standardised",
    "measured",
    "data_of",
    "align",
    "normalization",
    "layer_settings",
    "code",
)
#: for sentences
_OWN = "a file of a result"
#: said for the reader only: the models' sums tell what they are
SAID_ONLY = {"models_read", "recorded_numbers"}


def answer(question: PreparedAnalysis[Any], output: Output, blocks: Blocks | None = None, /, **drawing: Any) -> None:
    """Answer a question, write its files and figures, and print what was found and where it lies.

    Args:
        blocks: how jobs measure what is lacking; None: this process does.
        drawing: what the figure can be asked besides its width and title.
    """
    from ..plotting.style import save_figure

    base = base_of(output.out, question.folder / question.name)
    anew = output.force or not all(path.exists() for own in _mains(question, base) for path in own)
    again: list[str] = []
    result = obtain(question, base, output, blocks, again)
    with nullcontext() if anew else readable(_mains(question, base)[0][0]):
        derived = result.derive(base, again=anew and not output.redraw)
        result = with_labels(result, output)
        written = [Path(f"{base}{end}") for end in question.derived]
        written += [path for path in _numbers(question, base) if path.exists()]
        written += [path for path in derived if path not in written]
        with told_though_undrawn(result, written, output):
            figures = result.figures(output.width, output.title, **drawing)
            pages = result.pages(output.title, **drawing)
    written += [write_page(Path(f"{base}{end}.html"), page) for end, page in pages.items() if end not in figures]
    for end, figure in figures.items():
        written += save_figure(figure, f"{base}{end}", output.formats)
        if end in pages:
            written.append(write_page(Path(f"{base}{end}.html"), pages[end]))
    remove_drawings([f"{base}{end}" for end in set(question.drawn) - set(figures)])
    say_again(again)
    tell(result, written, output)


def width_of(output: Output) -> float:
    """Return the width that a figure will have, in inches."""
    from ..plotting.style import COLUMN, current

    return output.width or current().width or COLUMN


def with_labels(result: A, output: Output) -> A:
    """Return a result as ``--label`` calls its runs and models; its files keep the names, for labels are how they are
    shown.

    Raises:
        FedscopeError: labels that do not fit.
    """
    if not output.labels:
        return result
    return result.renamed(labels_of(output.labels, result.list_names(), result.list_drawn()))


@contextmanager
def told_though_undrawn(result: Result, written: Sequence[Path], output: Output) -> Iterator[None]:
    """Print what was found, and where its numbers lie, also where its figure is refused.

    Raises:
        FedscopeError: the refusal, as it is.
    """
    try:
        yield
    except FedscopeError:
        tell(result, written, output)
        raise


def tell(result: Result, written: Sequence[Path], output: Output) -> None:
    """Print what was found and where it lies."""
    with say_if_unprinted(f"what was found is whole in {list_few(written, 3)}"):
        if output.as_json:
            say_json({**plain(result.numbers()), "files": [str(path) for path in written]})
            return
        say_lines(result.summary())
        for path in written:
            say(f"  {path}")


def say_again(files: Iterable[str]) -> None:
    """Say which files already held what was asked for, once it is drawn."""
    for file in files:
        say(f"fedscope: {file} already holds this result; drawn again (--force computes it again)", err=True)


def obtain(
    question: PreparedAnalysis[A],
    base: Path,
    output: Output,
    blocks: Blocks | None = None,
    again: list[str] | None = None,
) -> A:
    """Return the answer: read back where its files hold it, else computed and saved.

    Args:
        blocks: how jobs measure what is lacking, before it is put together here.
        again: gets the files that already held it, for :func:`say_again` after the drawing.

    Raises:
        FedscopeError: ``--redraw`` without a result, or of another one than is named; another result, or a foreign
            file, in the way; another command that is writing it; labels that cannot fit.
    """
    if question.note:
        say(f"fedscope: {question.note}", err=True)
    mains = _mains(question, base)
    pictures = [
        *(Path(f"{base}{end}") for end in question.derived),
        *(Path(f"{base}{end}.{kind}") for end in question.drawn for kind in output.formats),
        *(Path(f"{base}{end}.html") for end in question.paged),
    ]
    refuse_linked_figures(base.parent, output.out)
    for path in pictures:
        refuse_strange(path, _OWN, ELSEWHERE, replaced=True)
    by_itself = [own for part, own in zip(question.parts, mains, strict=True) if part.read_back is None]
    if not output.redraw:
        taken = [*_numbers(question, base), *pictures]
        refuse_taken(question, [main for own in by_itself for main in own], taken, output)
        if output.labels:
            question.refuse_labels(output.labels)
    if blocks is not None and not output.redraw:
        _have_measured(question, base, mains, output, blocks)
    results: list[Any] = []
    stored: list[tuple[Path, Mapping[str, Any]]] = []
    replaced = any(main.exists() for own in mains for main in own)
    for number, (part, own) in enumerate(zip(question.parts, mains, strict=True)):
        kept = _find_results(part, own, output, results, again=again)
        made_from = [main for other in mains if other not in by_itself for main in other]
        if kept is not None and part.bring_up is not None and not output.redraw:
            kept = _bring_up(part, part.bring_up, base, own, made_from, kept)
        if kept is None:
            refuse_unwritable(own[0])
            for path in [*own, *part.files(base)]:
                refuse_strange(path, _OWN, ELSEWHERE, replaced=True)
            with lock_result(_partial(own), [*part.files(base), *pictures]) as claim:
                kept = _find_results(part, own, output, results, quiet=True)  # by who had the claim before
                if kept is None:
                    settings: dict[str, Any] = {"before": results, "earlier": _load_earlier(part, own, output)}
                    if blocks is not None:
                        settings = blocks.elsewhere(question, base, number, settings)
                    kept = _compute(part, base, [*own, *made_from], claim, settings)
                    if replaced:
                        remove_drawings([f"{base}{end}" for end in question.drawn], output.formats)
        part.release()
        if part.read_back is None:  # else it is of the results before it
            stored += zip(own, (one.attrs for one in kept), strict=True)
        results += map(make_visible, kept)
    if output.redraw:
        _refuse_mixed(question, base, results)
        with readable(mains[0][0]):
            refuse_another(stored)
        return question.join(results)
    if blocks is not None:
        blocks.forget(question, base)
    _place_parts(question, base, results)
    return question.join(results)


def _refuse_mixed(question: PreparedAnalysis[Any], base: Path, results: Sequence[Any]) -> None:
    """Refuse to draw parts as one answer that are of a run and of another that has replaced it.

    Raises:
        FedscopeError: names their files.
    """
    mains = dict(zip(question.ends, itertools.chain(*_mains(question, base)), strict=True))
    if replaced := of_replaced(dict(zip(question.ends, results, strict=True))):
        raise FedscopeError(
            f"{list_few([mains[end] for end in replaced], 4)} are of a run and of another that has replaced it, so "
            "they are not drawn together; leave out --redraw, and give --force"
        )


def _place_parts(question: PreparedAnalysis[Any], base: Path, results: Sequence[Any]) -> None:
    """Have the parts that an earlier command computed say that they are of this answer, too; and name those of another
    answer that lie under the base."""
    steps = [(part, end) for part in question.parts for end in part.ends]
    for place, ((part, end), result) in enumerate(zip(steps, results, strict=True)):
        if part.read_back is None and says_others(result, end, part.together):
            for path in part.kind.paths(f"{base}{end}"):
                refuse_strange(path, _OWN, ELSEWHERE, replaced=True)
            placed(result, place, end, part.together).save(f"{base}{end}")
    for kind in {part.kind for part in question.parts if part.kind.collected}:
        others = others_in(base, dict(_others(kind, base, question.ends)))
        files = [kind.paths(f"{base}{end}")[-1] for end in others]
        if files:
            warn_user(
                f"{list_few(files, 4)} {'are' if len(files) > 1 else 'is'} of another command with the same base, and "
                f"left as {'they are' if len(files) > 1 else 'it is'}; fedscope.load leaves "
                f"{'them' if len(files) > 1 else 'it'} out"
            )


def _others(kind: type[Result], base: Path, ends: Sequence[str]) -> Iterator[tuple[str, Result]]:
    """Yield the parts of a kind that lie under a base beside those of a question, as far as they can be read."""
    for end in ends_at(kind, base):
        if end and end not in ends:
            with suppress(FedscopeError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
                yield end, kind.load(f"{base}{end}")


def remove_drawings(bases: Iterable[Path | str], keep: Sequence[str] = ()) -> None:
    """Remove figures of a result that another one has replaced.

    Where a result lies, the files of its base are fedscope's. Links and folders of these names are left alone, for
    fedscope makes none.

    Args:
        keep: formats that are drawn anew.
    """
    for base in bases:
        for kind in set(Formats.KNOWN) - set(keep):
            path = Path(f"{base}.{kind}")
            if path.is_file() and not path.is_symlink():
                path.unlink()


def _have_measured(
    question: PreparedAnalysis[Any], base: Path, mains: Sequence[Sequence[Path]], output: Output, blocks: Blocks
) -> None:
    """Have jobs measure the parts whose results do not lie there."""
    from ..training.jobs.blocks import BlockProgress

    lacking = []
    for number, (part, own) in enumerate(zip(question.parts, mains, strict=True)):
        if part.read_back is None and _find_results(part, own, output, [], quiet=True) is None:
            refuse_unwritable(own[0])
            refuse_strange(own[0], _OWN, ELSEWHERE, replaced=True)
            lacking.append(number)
        part.release()
    if lacking:
        with progress(f"{base}: blocks") as report:
            blocks.measure(question, base, lacking, BlockProgress(report, partial(say, err=True)))


def _compute(
    part: Step[Any], base: Path, mains: Sequence[Path], claim: ResultLock, settings: Mapping[str, Any]
) -> list[Any]:
    results = part.answer(Execution(_partial(mains), progress, base, partial(say, err=True), **settings))
    claim.saving = True
    for main in mains:
        main.unlink(missing_ok=True)  # what --force replaces is not whole from here on
    for result, end in zip(results, part.ends, strict=True):
        result.save(f"{base}{end}")
    return results


def _bring_up(
    part: Step[Any],
    bring_up: Callable[[Any], Any],
    base: Path,
    mains: Sequence[Path],
    made_from: Sequence[Path],
    results: Sequence[Any],
) -> list[Any]:
    """Return results that were read back with their runs' numbers of now, which are saved; what is made from results
    that have changed is to be made again."""
    made = [bring_up(result) for result in results]
    if all(new is old for new, old in zip(made, results, strict=True)):
        return made
    refuse_unwritable(mains[0])
    for path in part.files(base):
        refuse_strange(path, _OWN, ELSEWHERE, replaced=True)
    with lock_result(_partial(mains), part.files(base)) as claim:
        claim.saving = True
        for main in made_from:
            main.unlink(missing_ok=True)
        for new, old, end in zip(made, results, part.ends, strict=True):
            if new is not old:
                new.save(f"{base}{end}")
    return made


def _partial(mains: Sequence[Path]) -> Path:
    return mains[0].with_name(f"{mains[0].name}.partial")


def _mains(question: PreparedAnalysis[Any], base: Path) -> list[list[Path]]:
    return [[part.kind.paths(f"{base}{end}")[-1] for end in part.ends] for part in question.parts]


def _numbers(question: PreparedAnalysis[Any], base: Path) -> list[Path]:
    return [path for part in question.parts for path in part.files(base)]


def _find_results(
    part: Step[Any],
    mains: Sequence[Path],
    output: Output,
    before: Sequence[Any],
    *,
    quiet: bool = False,
    again: list[str] | None = None,
) -> list[Any] | None:
    """Return the results that lie there, where they are those that are asked for; None where there is one to compute.

    Args:
        again: gets the file that holds them.
    """
    if part.read_back is not None:
        read = None if output.force else part.read_back(_base(part.kind, mains[0]), before, output.redraw)
        return None if read is None else [read]
    missing = [file for file in mains if not file.exists()]
    if output.redraw:
        if missing:
            raise FedscopeError(f"{missing[0]} does not exist, so there is nothing to draw again; leave out --redraw")
        return [_load_result(part.kind, file) for file in mains]
    if output.force:
        return None
    found = []
    for file, asked in zip(mains, part.settings, strict=True):
        if file in missing:
            continue
        found.append(_load_result(part.kind, file))
        kept = found[-1].attrs
        grown = {key for key in part.kind.grows if None not in (kept.get(key), asked.get(key))}
        changed = [key for key in _changed_settings(kept, asked) if key not in grown]
        only_run = output.out is None and {"run", METRICS}.issuperset(changed)  # under the default name
        if changed and only_run and has_grown(kept.get("run"), asked.get("run")):
            if not quiet:
                up_to = differences(kept, asked, changed)
                say(f"fedscope: {file} held this result of {up_to}; it is replaced", err=True)
            return None
        if changed:
            what = differences(found[-1].attrs, asked, changed)
            raise FedscopeError(f"{file} holds another result, of {what}; give another --out, or --force to replace it")
    if missing:
        return None
    if not all(result.is_enough(asked) for result, asked in zip(found, part.settings, strict=True)):
        if not quiet:
            say(f"fedscope: {mains[0]} ended at a smaller budget; going on from what it measured", err=True)
        return None
    if again is not None:
        again.append(str(mains[0]))
    return found


def _load_earlier(part: Step[Any], mains: Sequence[Path], output: Output) -> list[Any]:
    """Return the results that lie there and are to be gone on from: of the same settings, but not computed as far."""
    if output.force or not part.kind.grows or not all(file.exists() for file in mains):
        return []
    return [_load_result(part.kind, file) for file in mains]


def _load_result(kind: type[A], file: Path) -> A:
    """A result read back."""
    with readable(file):
        return kind.load(_base(kind, file))


@contextmanager
def readable(file: Path) -> Iterator[None]:
    """Whatever the files of a result hold that no result does, one sentence says so.

    Args:
        file: its main one.

    Raises:
        FedscopeError: what is done with it fails.
    """
    try:
        yield
    except FedscopeError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        said = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise FedscopeError(
            f"{file}, or another file of this result, is damaged ({said}); compute it again with --force"
        ) from error


def _base(kind: type[Result], main: Path) -> Path:
    return main.with_name(main.name.removesuffix(kind.suffixes[-1]))


def _changed_settings(kept: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    asked = {key: None for key in ONLY if key in kept} | {
        key: value for key, value in settings.items() if key not in SAID_ONLY
    }
    changed = [key for key, value in asked.items() if not _same(key, kept.get(key), value)]
    # where weights are others, so are models that are called alike but lie elsewhere
    elsewhere = "addresses" in asked and kept.get("addresses") != asked["addresses"]
    return (
        ["addresses", *changed] if elsewhere and "models_sha256" in changed and "addresses" not in changed else changed
    )


def _same(key: str, kept: Any, asked: Any) -> bool:
    """Equal; what a module answers, measured on another machine perhaps, up to single precision; a run by what tells it
    from others, whichever way to its folder was typed."""
    if key == "run":
        return is_same_run(kept, asked)
    if key == METRICS and kept is None:  # of an earlier version
        return True
    if key == "task_means_behaviour" and (kept is None or asked is None):  # likewise
        return True
    if key not in ("behaviour", "task_behaviour", "task_means_behaviour") or kept is None or asked is None:
        return is_same_setting(key, kept, asked)
    return same_answers(kept, asked)


def refuse_taken(question: PreparedAnalysis[Any], mains: Sequence[Path], files: Sequence[Path], output: Output) -> None:
    """Keep what lies where tables and figures will be written and no result there says that it is its own.

    Args:
        question: what it lacks is said first, for then nothing will be written.
        mains: the results' main files; where one exists, or what an interrupted command left of it, the files next to
            it are known to be fedscope's.

    Raises:
        FedscopeError: such a file, and no ``--force``.
    """
    if output.force or any(file.exists() or _partial([file]).exists() for file in mains):
        return
    for path in files:
        if path.exists():
            for part in question.parts:
                _ = part.ready
            raise FedscopeError(
                f"{path} is in the way, and without {mains[0]} it is not known what it holds; give another --out, or "
                "--force to replace it"
            )


def refuse_linked_figures(folder: Path, given: Path | InFolder | None) -> None:
    """Refuse to write figures of a run into a folder that is a link, where no place was given.

    Raises:
        FedscopeError: names the folder.
    """
    if given is None and any((folder.parent / name).exists() for name in ("run.json", "sweep.json")):
        refuse_linked(folder, remedy="put a folder in its place, or give --out")


def refuse_unwritable(file: Path, remedy: str = "give another --out") -> None:
    """Say before computing that the result could not be kept.

    Raises:
        FedscopeError: its folder is no folder, or may not be written to.
    """
    folder = file.absolute().parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise FedscopeError(f"{file} cannot be written, because {folder} cannot be written to; {remedy}")


def write_page(path: Path, page: str) -> Path:
    """Write a web page. The script that draws it, 5 MB, is a file next to it: once a folder, and not in each page."""
    from ..plotting.web_page import split_library

    page, name, library = split_library(page)
    beside = path.parent / name
    # whole, and not by its size: in a folder of somebody else's it may be anything, and the page runs it
    if library and not (beside.is_file() and not beside.is_symlink() and beside.read_bytes() == library):
        if beside.is_symlink():  # another folder's copy perhaps, and the page must not depend on where it leads
            said = f"{beside} was a link; what it leads to is left alone, and a file takes the link's place"
            warn_user(said)
            beside.unlink()
        with write_durably(beside) as temporary:
            temporary.write_bytes(library)
    with write_durably(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path
