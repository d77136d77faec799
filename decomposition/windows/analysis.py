"""Analysis: the number of rounds, or of checkpoints, that an average needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from ...analysis.analysis import PreparedAnalysis, SettingsAndCompute, analysis, single_result, slug_rounds
from ...analysis.execution import ROUNDS, Execution, Report, WorkUnit
from ...analysis.rounds import Rounds, parse_rounds
from ...analysis.run_identity import identity
from ...analysis.runs import RunLike, as_runs, resolve_runs
from ...analysis.settings import EvaluationConfig, EvaluationSettings, refuse_unknown_choice
from ...checkpoints import FedscopeError, Run
from ...evaluation.device import precision_of
from ...training.inputs.samples import common_samples, dataset_of, describe_samples, given_settings, module_for
from .checkpoint_result import CheckpointWindows
from .over_checkpoints import folder_in, refuse_files, windows_of_checkpoints
from .result import RoundMeans, WindowMeans

if TYPE_CHECKING:
    from ...evaluation.evaluator import Evaluator
    from ...evaluation.samples import Samples
    from .sliding_mean import SlidingMeans

#: of the paper's Table 4; those that a run is long enough for are taken
WINDOWS = (5, 10, 50, 100, 200)


@analysis
def wima(
    runs: RunLike | Sequence[RunLike],
    *,
    windows: str | Sequence[int | str] | None = None,
    rounds: Rounds = None,
    parts: str = "all",
    checkpoints: bool = False,
    weights: str | Sequence[str] | None = None,
    **measured: Unpack[EvaluationSettings],
) -> PreparedAnalysis[WindowMeans | CheckpointWindows]:
    """Measure how many rounds an average needs: the error of the mean of the last W global models, for several windows
    W.

    WIMA averages for evaluation only, so a run that was trained without it has the same globals, and so has one of
    another window: nothing is trained again. Where every global from round 1 on was recorded, the means are those of a
    run that was trained with the window, bit for bit. See
    :class:`~fedscope.decomposition.windows.sliding_mean.SlidingMeans`.

    In the last of the rounds every mean is also compared with the paper's equation 7, by which it is the server's steps
    from the start of the window on, with a rate that decays. See
    :func:`~fedscope.decomposition.windows.decayed_steps.decayed_steps`.

    Args:
        runs: one, or several for one figure; ``RUN@60`` is a run with ``rounds=60``. Their globals were recorded, in
            these rounds and in the W - 1 before each. Or a folder of checkpoints of one training, which is no run:
            model files, or folders of one model each, in the order of their names, numbers as numbers; they need
            ``data`` and ``model`` as other files do.
        windows: how many of the last globals are averaged, ``5,10,50``; those of 5, 10, 50, 100 and 200 that the last
            round has behind it by default. Of a window longer than the run so far all globals are averaged.
        rounds: which, ``last:100`` the last hundred; the last ten by default.
        parts: which parameters are averaged: ``all``, ``features`` (those before the head) or ``classifier``.
        checkpoints: average the clients of one round instead, of ``RUN@ROUND``: checkpoints of one training, of which
            the one with the greatest id is the newest, as ``import`` numbers the files of a folder. A folder of files
            needs no such word. Every window with every weighting is made in one pass over their bytes, and each mean's
            loss is compared with the newest checkpoint's on the same samples. ``windows`` are then 2, 4, 8, ... and all
            by default, ``"all"`` meaning all there are. The answer is a :class:`~fedscope.CheckpointWindows`.
        weights: how checkpoints weigh by their age: ``uniform``, ``linear``, ``cosine``, ``minus_sqrt``, ``ema`` or
            ``ema:0.99``; all five by default. See
            :func:`~fedscope.training.methods.shared.checkpoint_weights.checkpoint_weights`.
        measured: see :class:`~fedscope.analysis.settings.EvaluationSettings`; ``split`` is ``test``.

    Raises:
        FedscopeError: rounds that there are not; globals that were not recorded (says from which round on they are); a
            window that is none; parts of a run that another program recorded, or of a model without a head; weights
            without ``checkpoints``; one checkpoint; more checkpoints than there are; files of different networks.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> [row.window for row in fedscope.wima(run, windows=(2,)).rounds[-1].rows]
    [1, 2]
    >>> folder.cleanup()

    Source: Caldarola et al., "Window-based Model Averaging Improves Generalization in Heterogeneous Federated
    Learning", ICCV Workshops 2023, Table 4.
    """
    from .sliding_mean import refuse_missing

    source = EvaluationConfig.of("test", measured)
    refuse_unknown_choice("parts", parts, ("all", "features", "classifier"))
    if checkpoints or folder_in(runs, sure=source.model is not None) is not None:
        if parts != "all":
            raise FedscopeError(
                f"--parts {parts} is of a run's global models, but "
                + ("--checkpoints was given" if checkpoints else "a folder of checkpoints was given")
                + "; leave it out"
            )
        return windows_of_checkpoints(runs, windows, weights, rounds, source)
    refuse_files(as_runs(runs))
    if weights is not None:
        said = weights if isinstance(weights, str) else ",".join(weights)
        raise FedscopeError(
            f"--weights {said} are of checkpoints, but WIMA weighs all globals alike; give --checkpoints, too, or "
            "leave it out"
        )
    opened, asked_rounds = resolve_runs(runs, rounds)
    numbers = [
        parse_rounds(own or "last:10", run.rounds, str(run.path)) for run, own in zip(opened, asked_rounds, strict=True)
    ]
    lengths = windows_of(windows, max(own[-1] for own in numbers))
    for run, own in zip(opened, numbers, strict=True):
        if parts != "all":
            run.require("config.toml")
        refuse_missing(run, own, lengths[-1])

    def prepare() -> SettingsAndCompute[WindowMeans | CheckpointWindows]:
        dataset = dataset_of(opened, source)
        samples = common_samples(opened, dataset, source)
        modules = [module_for(run, source, dataset) for run in opened]
        sliding = [
            means_of(run, own, lengths, parts, module, samples)
            for run, own, module in zip(opened, numbers, modules, strict=True)
        ]
        settings: dict[str, Any] = {
            "run": [
                identity(run, {t for number in own for t in range(number - lengths[-1] + 1, number + 1)})
                for run, own in zip(opened, numbers, strict=True)
            ],
            "rounds": [[run.name, number] for run, own in zip(opened, numbers, strict=True) for number in own],
            "windows": list(lengths),
            "parts": parts,
            "averages": {run.name: average_of(run, own[-1]) for run, own in zip(opened, numbers, strict=True)},
            **given_settings(opened, source, module=modules[0]),
            **describe_samples(samples, source.seed if source.limit else None),
            "device": source.compute.name,
            "precision": precision_of(modules[0], source.precision),
        }

        def compute(attrs: dict[str, Any], work: Execution) -> WindowMeans:
            from ...evaluation.evaluator import Evaluator

            tasks = []
            for run, own, means, module in zip(opened, numbers, sliding, modules, strict=True):
                evaluator = Evaluator(module, samples, compute=source.compute)
                for before, number in zip((0, *own), own, strict=False):
                    size = number - before + len(lengths) + 1
                    tasks.append(task_of(run, number, means, evaluator, lengths, size, last=number == own[-1]))
            starts = {run.name: paces_of(run, own[-1]) for run, own in zip(opened, numbers, strict=True)}
            if "swa" in settings["averages"].values():  # no part of the question, which an older fedscope has answered
                attrs = {**attrs, "paces": {name: start for name, start in starts.items() if start is not None}}
            with work.store(settings, *ROUNDS) as store:
                return WindowMeans(tuple(work.each("windows", tasks, store)), parts, attrs)

        return settings, compute

    words = [source.split, *(run.name for run in opened[1:]), "-".join(map(str, lengths)) if windows else ""]
    words += ["" if parts == "all" else parts, slug_rounds(asked_rounds[0] or "last:10")]
    name = f"wima-{'-'.join(word for word in words if word)}"
    kind: type[WindowMeans | CheckpointWindows] = WindowMeans
    return single_result(kind, opened[0].path / "figures", name, prepare)


def task_of(
    run: Run, number: int, means: SlidingMeans, evaluator: Evaluator, windows: tuple[int, ...], size: int, *, last: bool
) -> WorkUnit[RoundMeans]:
    """Return the measuring of a round's windows, and of the steps that lead to them in the last one; ``size`` is how
    many models it reads without these."""
    size += min(number, windows[-1]) if last else 0

    def measure(report: Report) -> RoundMeans:
        from .sliding_mean import round_means

        where: dict[str, Any] = {"run": run.name, "number": number, "windows": windows}
        where["steps"] = run if last else None
        return round_means(means, evaluator, **where, progress=lambda read: report(read, size))

    # with which rounds a question ends is no part of it where it is kept
    return WorkUnit(f"{run.path}@{number}{' and steps' if last else ''}", RoundMeans, measure, size)


def windows_of(windows: str | Sequence[int | str] | None, last: int) -> tuple[int, ...]:
    """``5,10,50`` as lengths of windows, ascending; None for the default ones up to round ``last``.

    Raises:
        FedscopeError: a word that is no number from 2 on.

    >>> windows_of("10,5", 60), windows_of(None, 60), windows_of(None, 3)
    ((5, 10), (5, 10, 50), (5,))
    """
    if windows is None:
        return tuple(window for window in WINDOWS if window <= last) or WINDOWS[:1]
    several = windows if isinstance(windows, Iterable) else [windows]
    text = windows if isinstance(windows, str) else ",".join(map(str, several))
    found = set()
    for word in text.split(","):
        try:
            window = int(word)
        except ValueError:
            raise FedscopeError(f"--windows {text}: {word.strip()!r} is not a number; write 5,10,50") from None
        if window < 2:
            raise FedscopeError(
                f"--windows {text}: a window of {window} averages nothing, and global, W = 1, is always there; give "
                "numbers from 2 on"
            )
        found.add(window)
    return tuple(sorted(found))


def means_of(
    run: Run, rounds: Sequence[int], windows: Sequence[int], parts: str, module: Any, samples: Samples
) -> SlidingMeans:
    """Return the windows of a run, none moved yet.

    Raises:
        FedscopeError: parts of a model in which no head is known, or a layer that is none is taken for it.
    """
    from ...training import config_at
    from ...training.build import model_info
    from ...training.local.head_checks import Asking, refuse_other_head
    from ...training.methods.averages.wima import WIMA
    from ...training.models.model_info import ModelInfo
    from .sliding_mean import SlidingMeans

    methods: list[Any] = [WIMA(window=window, parts=parts) for window in windows]  # type: ignore[arg-type]
    if parts == "all":
        return SlidingMeans(run, methods, ModelInfo(run.layout), rounds)
    from dataclasses import replace

    config = replace(config_at(run, rounds[-1]), average=methods[0])
    config.average.resolve(config)
    facts = model_info(config, module, 0)
    named, without = "the head is {0}: train with --set model.head={0}, or give --parts all", "give --parts all"
    refuse_other_head(config, module, facts, samples, [Asking(f"--parts {parts}", "numbers", without, named)])
    return SlidingMeans(run, methods, facts, rounds)


def average_of(run: Run, round: int) -> str:
    """Return the average over rounds that a run itself keeps by a round; nothing before that starts, and nothing where
    another program recorded it."""
    from ...training import config_at
    from ...training.settings.registry import method_name

    if run.config is None:
        return "none"
    config = config_at(run, round)
    start = getattr(config.average, "start", None)
    return "none" if start is not None and round < start else method_name(config.average)


def paces_of(run: Run, round: int) -> int | None:
    """Return the round from which on the cycles of SWA, kept by a round, lower clients' learning rates; None where
    they do not."""
    from ...training import config_at
    from ...training.methods.averages.swa import SWA

    if average_of(run, round) != "swa":  # of a class of the user's own it is not known
        return None
    average = config_at(run, round).average
    return average.paces_from() if isinstance(average, SWA) else None
