"""Analysis: Lemma 1 and Theorem 2 of model averaging on a recorded run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np

from ...analysis.analysis import PreparedAnalysis, SettingsAndCompute, analysis, single_result, slug_rounds
from ...analysis.execution import Execution, Report, WorkUnit
from ...analysis.rounds import Rounds, parse_rounds, rounds_text
from ...analysis.run_identity import identity
from ...analysis.runs import RunLike, resolve_run
from ...analysis.settings import EvaluationConfig, EvaluationSettings, at_least, refuse_idle, refuse_unknown_choice
from ...checkpoints import FedscopeError, Run, recorded_clients, refuse_own_starts, rounds_with_clients
from ...evaluation.device import Compute
from ...evaluation.float64 import require_float64
from ...training.data.membership import kernel_rows, refuse_outside
from ...training.inputs.models import ResolvedModels, resolve_models
from ...training.inputs.samples import describe_samples, global_training_data, name_of, no_partition, read_as
from ...training.inputs.statistics import (
    measured_statistics,
    refuse_unknown_statistics,
    statistics_settings,
    statistics_word,
)
from ..draws.given_code import code_settings, refuse_ungiven
from ..draws.sources import Replays, parse_draws, replays_of, usual_draws
from .frozen_head import frozen_head, with_given_code
from .lemma1 import Gaps
from .result import Theory
from .theorem2 import Bounds, Spread

if TYPE_CHECKING:
    from ...evaluation.measured_statistics import MeasuredStatistics
    from ...evaluation.samples import Samples

#: what a provenance says of a recorded run's data
COMPARED = ("standardised", "data_accepted", "recorded_numbers")
#: what it says of how models are measured
ANSWERING = ("architecture", "behaviour", "task_behaviour", "task_means_behaviour", "precision", "device")
#: ε of a round's clients
SHRINK = {"recorded": (1.0,), "shrunk": tuple(2.0**-i for i in range(1, 7))}

#: samples and dimension of a kernel where none are given
KERNEL_SAMPLES, DIMENSION = 1000, 1024
#: of settings that are the kernel's alone
IDLE = "is of Theorem 2, which --kernel none leaves out; leave one out"


@analysis
def theory(
    run: RunLike,
    *,
    rounds: Rounds = None,
    shrink: Rounds = None,
    kernel: Rounds = None,
    kernel_samples: int = KERNEL_SAMPLES,
    dimension: int = DIMENSION,
    draws: str | int | None = None,
    outputs: Literal["probabilities", "logits"] = "probabilities",
    normalization: str = "averaged",
    **measured: Unpack[EvaluationSettings],
) -> PreparedAnalysis[Theory]:
    """Test whether Lemma 1 and Theorem 2 of model averaging (Zhou et al.) show in a recorded run.

    Lemma 1: averaging weights is averaging outputs up to O(Δ²), Δ the clients' greatest distance from their mean; over
    rounds, and for one round's clients drawn towards their mean. Theorem 2: a client's variance is that of equation 3,
    n_k/(2 λ_k) MMD² + λ_D − n_k/(2 λ_k) β_D in the neural tangent kernel, which the paper reads as: it follows the MMD
    between its data and all clients'. The variances are compared with both. See
    :func:`~fedscope.decomposition.theory.outputs.locality_gaps` and
    :func:`~fedscope.decomposition.theory.theorem2.client_bounds` for the formulas.

    Args:
        run: ``RUN@60`` is a run with ``rounds=60``.
        rounds: of Lemma 1; ``all`` with clients by default.
        shrink: those whose clients are also shrunk, or ``none``; the last by default.
        kernel: rounds of Theorem 2, or ``none``; the last of ``rounds`` by default.
        kernel_samples: of the training data, which the kernel is always of.
        dimension: to which gradients are projected.
        draws: replays whose variance is compared with Theorem 2's, ``local:R`` or R, or ``none``; ``local:4`` by
            default, and of a run that another program trained ``none``.
        outputs: which outputs f(x) of a client are averaged and compared.
        normalization: where models have BatchNorm statistics from: clients their own, and their mean the average of
            these (``averaged``); or all ``re-estimate`` them on 2,000 training samples, or ``limit``, so that they
            depend on the weights alone, as in the lemma.
        measured: see :class:`~fedscope.analysis.settings.EvaluationSettings`; ``split`` is of Lemma 1 and ``train``;
            ``seed`` draws the subsets and the projection; ``precision`` is ``float32``.

    Raises:
        FedscopeError: rounds without clients; a run without a partition, or one whose training cannot be replayed;
            data that the run was not trained on; a client without a sample in the kernel; a device without float64;
            settings of the kernel or of replays without a kernel.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> sorted({gap.round for gap in fedscope.theory(run).rounds})
    [1, 2]
    >>> folder.cleanup()
    """
    source = EvaluationConfig.of("train", measured)
    if source.precision != "float32":
        raise FedscopeError(
            f"--precision {source.precision} cannot see a gap that falls to nothing, which is measured in float64; "
            "leave it out"
        )
    refuse_unknown_statistics(normalization)
    at_least("kernel-samples", kernel_samples, 1)
    at_least("dimension", dimension, 1)
    refuse_unknown_choice("outputs", outputs, ("probabilities", "logits"))
    opened, asked = resolve_run(run, rounds)
    words = asked or "all"
    numbers, shrunk, kernels = rounds_of(opened, words, rounds_text(shrink), rounds_text(kernel))
    if not kernels:
        of_kernel = {"kernel-samples": (kernel_samples, KERNEL_SAMPLES), "dimension": (dimension, DIMENSION)}
        refuse_idle({**of_kernel, "draws": (None if draws == "none" else draws, None)}, IDLE)
    drawn, note = (
        ("none", "") if not kernels else usual_draws(f"local:{draws}" if isinstance(draws, int) else draws, [opened])
    )
    count = replays(drawn)
    refuse_unfit(opened, source.split, kernels, count)
    held = {number: rows_of(opened, number, kernel_samples, source.seed) for number in kernels}

    def prepare() -> SettingsAndCompute[Theory]:
        require_float64(source.compute.device, "theory")
        first = opened.round(numbers[0])
        resolved = resolve_models([f"{opened.path}@{first.number}/client-{first.client_ids[0]}"], source)
        read_as(resolved.module, opened)
        samples = samples_of(resolved, opened, source, kernels)
        given = with_given_code(opened, source) if kernels else opened
        frozen = {number: frozen_head(given, number, resolved.module) for number in kernels}
        settings: dict[str, Any] = {
            **{key: resolved.settings[key] for key in ANSWERING if key in resolved.settings},
            **{key: resolved.settings[key] for key in COMPARED if key in resolved.settings and opened.is_foreign},
            **describe_samples(samples, source.seed if source.limit or kernels else None),
            **{
                "run": identity(opened, {*numbers, *shrunk, *kernels}),
                "rounds": numbers,
                "shrink": shrunk,
                "kernel": kernels,
                "limit": source.limit,
            },
            **{"kernel_samples": kernel_samples if kernels else None, "dimension": dimension if kernels else None},
            **{"draws": f"local:{count}" if count else None, "outputs": outputs, "parameters": opened.layout.size},
            **({"frozen_head": sorted(frozenset.union(*frozen.values()))} if any(frozen.values()) else {}),
            **counted_for_fedswa(opened, numbers),
            **statistics_settings(source, normalization, resolved.module, resolved.dataset),
            **(code_settings([(opened, kernels)], source) if count else {}),
        }
        statistics = measured_statistics(resolved.module, resolved.dataset, source, normalization)
        tasks = Tasks(opened, resolved, samples, held, frozen, settings, source.compute, source, statistics)

        def compute(attrs: dict[str, Any], work: Execution) -> Theory:
            if count:
                refuse_ungiven(opened, source.code, changed=source.code_changed, rounds=kernels)
            with work.store({**settings, "prediction": "equation 3"}, "rounds", "shrink", "kernel") as store:
                asked = [tasks.gaps(t, way) for t in numbers for way in SHRINK if way == "recorded" or t in shrunk]
                gaps = work.each("gaps of Lemma 1", asked, store)
                left = [t for t in kernels if f"{t} replays" not in store.done] if count else []
                limits: dict[str, Any] = {"limited": source.limit is not None, "instead": "--draws none needs 0"}
                cost = replays_of(opened, left, count, source.compute, **limits, tell=work.tell)
                cost.announce()
                bounds = work.each("kernels", map(tasks.bounds, kernels), store)
                replayed = [tasks.replays(t, count, cost) for t in kernels if count]
                spreads = work.each("replays", replayed, store) if replayed else [None] * len(bounds)
            clients = [one for own, spread in zip(bounds, spreads, strict=True) for one in own.with_replays(spread)]
            said = {} if statistics is None else statistics.provenance()
            return Theory(
                opened.name, tuple(gap for own in gaps for gap in own.gaps), tuple(clients), {**attrs, **said}
            )

        return settings, compute

    name = "-".join(["theory", source.split, *statistics_word(normalization), slug_rounds(words)])
    return single_result(Theory, opened.path / "figures", name, prepare, note=note)


@dataclass(frozen=True)
class Tasks:
    """Measurements of each round.

    Attributes:
        samples: of Lemma 1.
        held: the samples of each round's kernel, by their places in the train split, and whose they are.
        frozen: parameters of a head that each round's clients kept as it was, which its kernel is without.
        source: whose seed is that of the projection.
        statistics: has the samples on which running statistics are measured; None: the models have theirs.
    """

    run: Run
    resolved: ResolvedModels
    samples: Samples
    held: Mapping[int, tuple[np.ndarray, np.ndarray]]
    frozen: Mapping[int, frozenset[str]]
    settings: Mapping[str, Any]
    compute: Compute
    source: EvaluationConfig
    statistics: MeasuredStatistics | None = None

    @property
    def how(self) -> dict[str, Any]:
        """The settings by which models are measured."""
        return {name: self.settings[name] for name in ("outputs",)} | {"compute": self.compute}

    def of_kernel(self, number: int) -> Samples:
        """Return the samples of a round's kernel."""
        train, rows = self.resolved.dataset.samples("train"), self.held[number][0]
        return replace(train, x=train.x[rows], y=train.y[rows], indices=rows)

    def gaps(self, number: int, way: str) -> WorkUnit[Gaps]:
        """Compute the gap of a round as recorded, or those of its shrunk clients."""

        def measure(report: Report) -> Gaps:
            from .outputs import locality_gaps

            cohort = self.run.round(number)
            asked = {"round": number, "shrink": SHRINK[way], **self.how, "progress": report}
            if self.statistics is not None:
                asked["calibration"] = self.statistics.normalization.calibration
            return Gaps(locality_gaps(self.resolved.module, self.samples, cohort.clients(), cohort.weights, **asked))

        return WorkUnit(f"{number} {way}", Gaps, measure, len(SHRINK[way]) * len(self.samples))

    def bounds(self, number: int) -> WorkUnit[Bounds]:
        """Return the clients of a round in Theorem 2, of the model they were sent."""
        how: dict[str, Any] = {"dimension": self.settings["dimension"], "seed": self.source.seed}
        how |= {"frozen": self.frozen[number], "compute": self.compute}
        rows, members = self.held[number]

        def measure(report: Report) -> Bounds:
            from .tangent import tangent_kernel
            from .theorem2 import client_bounds

            round_, x = self.run.round(number), self.of_kernel(number).x[:]
            kernel = tangent_kernel(self.resolved.module, x, round_.read("start"), progress=report, **how)
            return Bounds(client_bounds(kernel, members, round_.client_ids, round=number))

        return WorkUnit(f"{number} kernel", Bounds, measure, len(rows))

    def replays(self, number: int, count: int, cost: Replays) -> WorkUnit[Spread]:
        """Compute the variances of a round's clients over replays of their local training."""

        def measure(report: Report) -> Spread:
            from ..draws.replay import Replayer
            from .outputs import replay_variances

            replayer = Replayer.of(
                self.run,
                self.resolved.dataset,
                compute=self.compute,
                code=self.source.code,
                code_changed=self.source.code_changed,
                module=self.resolved.module,
            )
            cohort = replayer.local_draws(number, count, cost.watch(number, report))
            return Spread(replay_variances(self.resolved.module, self.of_kernel(number), cohort, **self.how))

        return WorkUnit(f"{number} replays", Spread, measure, len(self.held[number][1]) * (count - 1))


def counted_for_fedswa(run: Run, rounds: Sequence[int]) -> dict[str, Any]:
    """Collect what FedSWA's bound needs of a run that one of FedSWA's halves trained: the fewest and the most local
    steps of a client in these rounds, and how many rounds there are up to the last. Nothing of other runs, and where a
    program did not record the steps."""
    if run.config is None:
        return {}
    from ...training import config_at
    from ...training.settings.registry import method_name

    config = config_at(run, rounds[-1])
    if not {"fedswa", "fedmoswa"} & {method_name(config.client), method_name(config.server)}:
        return {}
    if not all(run.round(number).has("client_steps") for number in rounds):
        return {}
    steps = np.concatenate([run.round(number).client_steps for number in rounds])
    return {"fedswa": {"steps": [int(steps.min()), int(steps.max())], "rounds": rounds[-1]}}


def rounds_of(run: Run, words: str, shrink: str | None, kernel: str | None) -> tuple[list[int], list[int], list[int]]:
    """Return the rounds of Lemma 1, those whose clients are shrunk, and those of Theorem 2.

    Raises:
        FedscopeError: rounds that there are not, or without clients; one to shrink that is not of Lemma 1.
    """
    have = rounds_with_clients(run)
    numbers = parse_rounds(words, have if have and words.strip() == "all" else run.rounds, str(run.path))
    for number in numbers:
        recorded_clients(run, number, start=False)
    shrunk = some_rounds(shrink, numbers, have, "--shrink", run)
    if not set(shrunk) <= set(numbers):
        missing = min(set(shrunk) - set(numbers))
        raise FedscopeError(f"--shrink {shrink}: round {missing} is not asked for by --rounds")
    return numbers, shrunk, some_rounds(kernel, numbers, have, "--kernel", run)


def rows_of(run: Run, number: int, samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the samples of a round's kernel, by their places in the train split, and whose they are: found before
    anything is measured, so that what cannot be is refused before Lemma 1.

    Raises:
        FedscopeError: a round without the model that its clients were sent; a client without a sample.
    """
    refuse_own_starts(run, [number], "theory's kernel", remedy="give --kernel none for Lemma 1 alone, or ")
    recorded_clients(run, number)
    return kernel_rows(run.partition, run.round(number).client_ids, samples, seed, number)


def some_rounds(text: str | None, asked: Sequence[int], have: Sequence[int], option: str, run: Run) -> list[int]:
    """Rounds of a part of the analysis: the last one asked for by default, nothing for ``none``."""
    if text is None or text.strip() == "last":
        return [asked[-1]]
    return [] if text.strip() == "none" else parse_rounds(text, tuple(have), str(run.path), option=option)


def replays(draws: str | int) -> int:
    """R of ``local:R``; 0 for ``none``.

    Raises:
        FedscopeError: other draws.
    """
    text = f"local:{draws}" if isinstance(draws, int) else str(draws)
    if text == "none":
        return 0
    if text.partition(":")[0] != "local":
        raise FedscopeError(f"--draws {text}: the variance here is one over replays; use local:R (local:4) or none")
    return parse_draws(text).count


def refuse_unfit(run: Run, split: str, kernels: Sequence[int], count: int) -> None:
    """Say what a run of another program lacks before anything is computed.

    Raises:
        FedscopeError: a partition, or a configuration.
    """
    if run.partition is None and (kernels or split == "train"):
        needs = "Theorem 2 needs it" if kernels else "--split train is all clients' data"
        raise no_partition(run, f"and {needs}; give --split test --kernel none for Lemma 1 alone")
    if run.is_foreign and count:
        raise FedscopeError(
            f"{run.path} was recorded by {run.info['source']}, whose training cannot be replayed; give --draws none"
        )


def samples_of(resolved: ResolvedModels, run: Run, source: EvaluationConfig, kernels: Sequence[int]) -> Samples:
    """Return the samples of Lemma 1.

    Raises:
        FedscopeError: the partition is used, but is of other data, or there are no training samples.
    """
    if run.partition is None or (source.split == "test" and not kernels):
        return resolved.samples
    seen = run.info.get("data", {}).get("sha256")
    if kernels and not len(resolved.dataset.y_train):
        raise FedscopeError(
            f"{resolved.dataset.name} has no training samples, and Theorem 2 needs the clients'; give --kernel none "
            "for Lemma 1 alone"
        )
    if seen is None:
        refuse_outside(run.partition, len(resolved.dataset.samples("train")), str(run.path), str(name_of(source.data)))
    elif seen != resolved.dataset.sha256:
        raise FedscopeError(
            f"--data {name_of(source.data)} is not the data that {run.path} was trained on, so that its clients hold "
            "other samples; leave out --data, or give --split test --kernel none"
        )
    if source.split == "test":
        return resolved.samples
    samples = global_training_data(resolved.dataset, run)
    return samples if source.limit is None else samples.limit(source.limit, source.seed)
