"""``fedscope.report``: one page on runs, for a co-author."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from ..analysis.analysis import take_labels
from ..analysis.runs import distinct_names, open_run
from ..analysis.settings import EvaluationSettings
from ..checkpoints import FedscopeError, Run, expand_home, format_size, nearest, write_durably
from ..checkpoints.io.keywords import speak_keywords
from ..checkpoints.io.repr_screen import screen
from ..checkpoints.io.safe_write import ELSEWHERE, explain_unwritten, refuse_strange
from ..checkpoints.io.warn_user import warn_user
from ..landscape.planes.drawing.color_scales import SurfaceColours
from ..training.loop.verify_run import check_run
from .discover import find_results
from .html import MARK, SORTING, page
from .run_names import labels_of_runs, name_report
from .sections import (
    Live,
    checked_html,
    clients_html,
    configuration_html,
    curves_html,
    files_html,
    foot_html,
    head_html,
    sections_html,
    verdicts_html,
)
from .verdict import soundness


@dataclass(frozen=True)
class Report:
    """A page on runs.

    Attributes:
        html: the page.
        results: how many results it shows.
        faults: how many faults the runs' checks found.
        broken: by run why it is not sound, a sentence each; sound ones are left out.
        title: the page's heading.
    """

    html: str
    results: int
    faults: int
    broken: Mapping[str, str]
    title: str = ""

    def __repr__(self) -> str:
        sound = [f"{name}: {why}" for name, why in self.broken.items()] or ["every run is sound"]
        return screen(
            self.title or "Report",
            [f"a page of {format_size(len(self.html.encode()))} with {self.results} results", *sound],
            ['save("report.html")', "html", "fedscope.load(BASE) opens one of its results"],
        )

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own, for a notebook, whose styles it must not change."""
        from html import escape

        return f'<iframe srcdoc="{escape(self.html)}" style="width:100%;height:40em;border:1px solid #ccc"></iframe>'

    @explain_unwritten()
    def save(self, path: Path | str, *, force: bool = False) -> Path:
        """Write it; an earlier report there is replaced.

        Raises:
            FedscopeError: another file is in the way, and not ``force``; the disk is full.
        """
        path = expand_home(path)
        refuse_other_file(path, force)
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_durably(path) as temporary:
            temporary.write_text(self.html, encoding="utf-8")
        return path


def refuse_other_file(path: Path, force: bool) -> None:
    """Refuse to replace what is no report.

    Raises:
        FedscopeError: names it.
    """
    refuse_strange(path, "a page", ELSEWHERE, replaced=True)
    if force or not path.exists():
        return
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            ours = MARK in file.read(4096)
    except OSError:
        ours = False
    if not ours:
        raise FedscopeError(f"{path} is in the way, and is not a report; give another --out, or --force to replace it")


@partial(speak_keywords, more=EvaluationSettings.__annotations__)
def report(
    runs: Sequence[Run | Path | str] | Mapping[str, Run | Path | str] | Run | Path | str,
    *,
    labels: Sequence[str] | Mapping[str, str] | None = None,
    title: str | None = None,
    results: Sequence[Path | str] | Path | str = (),
    colour_scale: str = "log",
    compute: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
    **measured: Unpack[EvaluationSettings],
) -> Report:
    """Make one page on one run or several: a verdict first, then curves, and every result in the runs' ``RUN/figures``,
    their clients, checks, configurations and files with their sha256.

    Nothing is computed anew but the checks: what is not there is said, with the command that makes it. The same runs
    and results give the same page, byte for byte. Results that were made in Python are shown once they are saved there:
    ``fedscope.plane(...).save("runs/ima/figures/plane")``.

    Args:
        runs: one or several, or a dict of them by what they are called on the page.
        labels: what they are called, in their order or by their folders' names; by default these names.
        title: the page's heading; by default the runs' names.
        results: folders with further results, as a command's ``--out`` left them; those of other runs are passed over.
        colour_scale: of surfaces: ``log`` above the minimum, or ``linear``.
        compute: first ask what is missing, as ``--compute`` does, into ``RUN/figures``: ``explain``, a plane near the
            last round's clients, ``subsets``, ``cka``, ``matrix``, ``line --layers each``, ``updates`` with and without
            layers; of LoRA adapters also ``adapters``. What cannot be asked of a run is a
            :class:`~fedscope.checkpoints.FedscopeWarning`.
        progress: told what is done, how far it is, and of how much.
        measured: on what ``compute`` measures; see :class:`~fedscope.analysis.settings.EvaluationSettings`. Each
            question has its own ``split``.

    Raises:
        FedscopeError: no run there; two runs of one name or label; a label of no run; a run without rounds; no such
            folder of results; another scale.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> fedscope.report(run).title
    'Report on run'
    >>> folder.cleanup()
    """
    (about,), _, taken = take_labels("runs", [runs], {} if labels is None else {"labels": labels})
    given: list[Any] = [about] if isinstance(about, Run | Path | str) else list(about)
    if not given:
        raise FedscopeError("a report is about runs, and none is given; give RUN, or several")
    colours = SurfaceColours(colour_scale=colour_scale)
    opened = [open_run(one, "") for one in given]
    names = distinct_names(opened)
    called = labels_of_runs(taken, opened)
    for run in opened:
        run.round("last")  # says that there is none
    folders = [Path(results)] if isinstance(results, Path | str) else [Path(folder) for folder in results]
    _refuse_settings(measured, compute)
    if compute:
        for run in opened:
            _compute(run, folders, measured, progress)
    tell = progress or (lambda what, done, of: None)
    checks = [check_run(run.path, lambda done, of, run=run: tell(f"checking {run.name}", done, of)) for run in opened]  # type: ignore[misc]
    found = [find_results(run, folders) for run in opened]
    live = Live(colours)
    parts = [
        head_html(opened, title, called),
        verdicts_html(opened, checks, found, called),
        "<h2 id=curves>Curves</h2>",
        curves_html(opened, called),
        *sections_html(opened, found, live, tell, called),
        *(clients_html(run, called, several=len(opened) > 1) for run in opened),
        "<h2 id=checks>Checks</h2>",
        *(
            checked_html(run, sound, own, called, several=len(opened) > 1)
            for run, sound, own in zip(opened, checks, found, strict=True)
        ),
        "<h2 id=configuration>Configuration</h2>",
        *(configuration_html(run, called, several=len(opened) > 1) for run in opened),
        "<h2 id=files>Files</h2>",
        *(files_html(run, tell, called) for run in opened),
        live.figures(),
        foot_html(opened),
    ]
    heading = title or name_report(opened, called)
    return Report(
        page(heading, "\n".join(part for part in parts if part), [*live.scripts(), SORTING]),
        len({one.base for own in found for one in own.results}),
        sum(len(sound.faults) for sound in checks),
        {
            name: said.answer
            for name, run, one in zip(names, opened, checks, strict=True)
            if (said := soundness(run, one)).tone == "bad"
        },
        heading,
    )


def _refuse_settings(measured: EvaluationSettings, compute: bool) -> None:
    """Refuse settings of what is measured that would be without effect, or that there are not.

    Raises:
        FedscopeError: without ``compute``; a split. TypeError: another setting.
    """
    known = EvaluationSettings.__annotations__
    for name, value in measured.items():
        if name not in known:
            raise TypeError(f"fedscope.report has no setting {name!r}{nearest(name, known)}")
        if name == "split":
            raise FedscopeError(f"split={value!r}: a report's questions have splits of their own; leave split= out")
        if not compute:
            raise FedscopeError(f"{name}= is for what compute=True measures; add compute=True, or leave {name}= out")


def _compute(
    run: Run,
    folders: Sequence[Path],
    measured: EvaluationSettings,
    progress: Callable[[str, int, int], None] | None,
) -> None:
    """Ask what is missing of a run; what cannot be asked is a warning."""
    from ..analysis.named_code import NamedCodeError
    from .compute_missing import compute_missing, keep_answer
    from .missing_results import MissingResult

    def warn(what: str, why: str) -> None:
        warn_user(f"{what}: {why}")

    def answer(one: MissingResult) -> None:
        try:
            keep_answer(one.question, one.question.folder / one.question.name, progress)
        except NamedCodeError as error:
            warn("not answered", error.as_call("report", [run], {"compute": True, **measured}))
        except FedscopeError as error:
            warn("not answered", str(error))

    asked = {name: value for name, value in measured.items() if value is not None and name != "limit"}
    given = {name: value for name, value in asked.items() if (name, value) != ("accept_data", False)}
    compute_missing(run, folders, measured.get("limit"), given, answer, lambda line: None, warn)
