"""Loss, error and client spread over rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from ...analysis.analysis import PreparedAnalysis, PreparedStep, Step, analysis
from ...analysis.run_identity import METRICS, identity
from ...analysis.runs import RunLike, open_run, refuse_no_run, several
from ...analysis.settings import at_least
from ...checkpoints import FedscopeError, Run, real_path
from ...checkpoints.io.errors import list_few
from ...checkpoints.io.shell_words import command_line
from ...checkpoints.io.untrusted import expand_home
from ...checkpoints.io.visible_text import visible
from ...checkpoints.io.warn_user import warn_user
from ..data.same_data import is_pooled, other_data, same_data
from ..sweeps.plan import FILE
from ..sweeps.printed_commands import resuming
from ..sweeps.schedule import RUNS
from ..sweeps.sweep import Sweep
from .bands import bands_over
from .measures import USUAL, measure_of, refuse_unknown
from .result import Curves
from .run_curve import digest_of


@analysis
def curves(
    runs: RunLike | Sweep | Sequence[RunLike | Sweep],
    *,
    measures: Sequence[str] = (),
    last: int | None = None,
    smooth: int = 0,
    target: float | None = None,
    bands: bool = False,
) -> PreparedAnalysis[Curves]:
    """Loss, error and client spread over rounds, as they were measured while training.

    ``test_loss`` and ``test_error`` are those of the model that a user would deploy: the averaged one where there is
    one.

    Args:
        runs: one, or several for one figure; whole runs. Of a sweep those that are complete; what is missing is a
            :class:`~fedscope.checkpoints.FedscopeWarning`.
        measures: columns of ``metrics.csv``, or ``accuracy`` for its error, as ``test_accuracy``, a panel each;
            ``test_loss`` and ``test_error`` by default.
        last: of how many measured rounds, the last ones, mean and deviation are told; by default a tenth of them, 10 at
            most.
        smooth: window of a Savitzky-Golay smoothing in rounds, for the figure; 0 for none.
        target: an accuracy, 0 to 1: which measured round is the first with it, as measured and not smoothed, and
            how many parameters were sent until then. Of the errors and accuracies among ``measures``.
        bands: draw runs that differ only in their seed (``run.seed``, ``data.seed``) as one line, their mean, in a
            band of one standard deviation over the seeds (n - 1), in the rounds that all of them have; its
            numbers lie in ``BASE.bands.csv``.

    Raises:
        FedscopeError: a run without rounds, or given twice; a sweep of which no run is complete; a measure that does
            not exist or has no numbers; a window that does not fit; a target that is no accuracy, or of measures that
            leave none; bands of one seed each.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> [one.run for one in fedscope.curves(run).runs]
    ['run']
    >>> folder.cleanup()
    """
    if last is not None:
        at_least("last", last, 1)
    if target is not None and not 0 < target <= 1:
        percent = f"; for {target:g} % give --target {target / 100:g}" if 1 < target <= 100 else ""
        raise FedscopeError(f"--target {target:g} is not an accuracy greater than 0 and at most 1{percent}")
    names = tuple(dict.fromkeys([measures] if isinstance(measures, str) else measures))
    given = several(runs, Sweep)
    named = [_open_source(one) for one in given]
    opened = [run for _, _, own in named for run in own]
    _tell_other_data([own for _, _, own in named])
    asked: dict[str, Any] = {"measures": names, "last": last, "smooth": smooth, "target": target}
    measured = Curves.of(opened, bands=bands, **asked)
    refuse_unknown(names, measured.columns)
    measured.drawable()
    _tell_no_shares(measured, names)
    # Metrics grow while a run trains, so the last round belongs to what tells one result from another.
    runs_now = [{**identity(run), "rounds": run.rounds[-1]} for run in opened]
    metrics = [digest_of(curve) for curve in measured.runs]
    settings: dict[str, Any] = {"run": runs_now, METRICS: metrics, **measured.attrs}
    part = Step(Curves, lambda: PreparedStep([settings], lambda attrs, _: [replace(measured, attrs=attrs[0])]))

    def join(results: list[Curves]) -> Curves:  # what is drawn and told is no part of the files
        return replace(results[0], **asked, bands=bands_over(measured.bands, results[0]))

    name = "-".join(["curves", *(called for called, _, _ in named), *names, *(["bands"] if bands else [])])
    return PreparedAnalysis(named[0][1] / "figures", name, (part,), join)


def _tell_other_data(sources: Sequence[Sequence[Run]]) -> None:
    """Say of runs that were given side by side that they are on different data; a sweep over data says so itself, but
    not that the file of one name has changed meanwhile."""
    for first, second in combinations(sources, 2):
        pairs = [(one, other) for one in first for other in second]
        if pairs and not any(_may_compare(*pair) for pair in pairs):
            one, other = pairs[0]
            names = " and ".join(str(run.info["data"].get("name", "without a name")) for run in (one, other))
            warn_user(f"{one.name} and {other.name} are on different data ({names}), so their numbers do not compare")
            return
    if changed := other_data([run for own in sources for run in own]):
        one, other = changed
        warn_user(
            f"{one.name} and {other.name} are on different data that are both called {one.info['data'].get('name')}, "
            "so their numbers do not compare"
        )
    _tell_other_tests(sources)


def _tell_other_tests(sources: Sequence[Sequence[Run]]) -> None:
    """Say of runs that were given side by side that ``data.pool`` tests some on their clients' test parts; a sweep over
    it says so itself."""
    for first, second in combinations(sources, 2):
        pairs = [(one, other) for one in first for other in second if _may_compare(one, other)]
        if pairs and not any(is_pooled(one) == is_pooled(other) for one, other in pairs):
            one, other = pairs[0]
            pooled = one if is_pooled(one) else other
            warn_user(
                f"{one.name} and {other.name} are tested on different samples ({pooled.name} on its clients' test "
                "parts, by data.pool), so their numbers do not compare"
            )
            return


def _may_compare(one: Run, other: Run) -> bool:
    """Check whether runs are on the same data, as far as they say it."""
    return same_data(one.info.get("data", {}), other.info.get("data", {})) is not False


def _tell_no_shares(measured: Curves, names: Sequence[str]) -> None:
    """Errors that were recorded in per cent are drawn as shares, a hundredfold."""
    import numpy as np

    for measure in map(measure_of, names or USUAL):
        if not measure.is_reachable:
            continue
        said = [curve.run for curve in measured.runs if np.nanmax([0.0, *curve.deployed(measure.column)]) > 1]
        if said:
            warn_user(f"{measure.column} of {list_few(said)} is no share from 0 to 1; was it recorded in per cent?")


def _open_source(one: RunLike | Sweep) -> tuple[str, Path, Sequence[Run]]:
    """Open a run or a sweep: its name, its folder, and its runs."""
    if not isinstance(one, Sweep):
        refuse_no_run(one)
    one = expand_home(one) if isinstance(one, str | Path) else one
    if not isinstance(one, Sweep) and (isinstance(one, Run) or not (Path(one) / FILE).is_file()):
        run = open_run(one, "")
        return run.name, run.path, (run,)
    sweep = one if isinstance(one, Sweep) else Sweep.open(one, checked=False)
    if not sweep.runs:
        raise FedscopeError(
            f"{sweep.path} is a sweep of which no run is complete; go on with it: "
            f"{command_line(*resuming(sweep.plan, sweep.path))}"
        )
    if missing := len(sweep.missing):
        warn_user(f"{sweep.path}: {missing} of {len(sweep.plan.runs)} runs are not complete and are left out")
    return visible(real_path(sweep.path).name), sweep.path, sweep.runs


def whole_runs(given: Sequence[RunLike | Sweep]) -> list[Run]:
    """Runs, and of sweeps those that are complete.

    Raises:
        FedscopeError: no run; a sweep of which no run is complete.
    """
    return [run for one in given for run in _open_source(one)[2]]


def growing_runs(given: Sequence[RunLike | Sweep]) -> dict[Path, int | None]:
    """Return where runs lie that may still train, and of sweeps where all of their runs do or will, with how many
    rounds they are to have where a plan says it.

    Raises:
        FedscopeError: neither a run nor a sweep.
    """
    found: dict[Path, int | None] = {}
    for one in given:
        one = expand_home(one) if isinstance(one, str | Path) else one
        if isinstance(one, Sweep) or (not isinstance(one, Run) and (Path(one) / FILE).is_file()):
            sweep = one if isinstance(one, Sweep) else Sweep.open(one, checked=False)
            found |= {sweep.path / RUNS / run.name: run.rounds for run in sweep.plan.runs}
        else:
            found[open_run(one, "").path] = None
    return found
