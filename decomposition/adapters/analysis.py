"""Analysis: means of adapters."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import Any, Unpack

from ...analysis.analysis import PreparedAnalysis, SettingsAndCompute, analysis, single_result, slug_rounds
from ...analysis.execution import ROUNDS, Execution, Report, WorkUnit
from ...analysis.rounds import Rounds, client_rounds
from ...analysis.run_identity import identity
from ...analysis.runs import RunLike, resolve_run
from ...analysis.settings import EvaluationConfig, EvaluationSettings, refuse_idle
from ...checkpoints import FedscopeError, Run, recorded_matrix
from ...checkpoints.models.adapters import factors_in, settings_of_run
from ...checkpoints.models.products import Adapters, odd_one, unclear_factors
from ...evaluation.device import precision_of
from ...training.inputs.samples import common_samples, dataset_of, describe_samples, given_settings, module_for, name_of
from .means import RoundAdapterMeans
from .recorded_adapters import about_products, adapters_of_run, said_again, warn_of_products
from .result import AdapterMeans

#: of settings that are the cost's alone
IDLE = "is for the cost of averaging factors, which nobody asked for; give --cost too, or leave it out"


@analysis
def adapters(
    run: RunLike, *, rounds: Rounds = None, cost: bool = False, **measured: Unpack[EvaluationSettings]
) -> PreparedAnalysis[AdapterMeans]:
    """Measure how far means of LoRA adapters are from the mean of what the adapters do, by layer and round, and which
    mean the run's server has made.

    An adapter adds s B A to a layer's weights. The mean of the factors, (Σ p_i B_i)(Σ p_i A_i), is not the mean of the
    products, Σ p_i B_i A_i. See :class:`~fedscope.decomposition.adapters.means.LayerMeans` for the formulas. All are
    computed from the factors, and none depends on their choice: B G⁻¹ and G A give the same, but for the means of
    factors, which do depend on it.

    Args:
        run: ``RUN@60`` is a run with ``rounds=60``.
        rounds: which, or ``all`` with their clients, the default.
        cost: whether to measure the loss of the mean of factors less that of the mean of products at the adapter's
            rank, with its interval over samples. Needs the architecture, with its base, and data.
        measured: see :class:`~fedscope.analysis.settings.EvaluationSettings`; ``split`` is ``test``. Data or a model
            that are given ask for the cost.

    Raises:
        FedscopeError: a run whose models are no adapters, or of a kind without products; rounds without clients; how
            the cost is to be measured, where it is not.
    """
    source = EvaluationConfig.of("test", measured)
    cost = cost or source.data is not None or source.model is not None
    if not cost:
        refuse_idle(_of_cost(source), IDLE)
    opened, asked_rounds = resolve_run(run, rounds, adapters="products")
    products = required_adapters(opened)
    warn_of_products([opened])

    def prepare() -> SettingsAndCompute[AdapterMeans]:
        asked = client_rounds(opened, asked_rounds if asked_rounds is not None else "all")
        settings: dict[str, Any] = {
            "run": identity(opened, asked),
            "rounds": asked,
            "cost": cost,
            **about_products(products),
        }
        if cost:
            dataset = dataset_of([opened], source)
            samples, module = common_samples([opened], dataset, source), module_for(opened, source, dataset)
            settings |= {
                **given_settings([opened], source, module=module),
                **describe_samples(samples, source.seed if source.limit else None),
                "device": source.compute.name,
                "precision": precision_of(module, source.precision),
            }

        def task(number: int) -> WorkUnit[RoundAdapterMeans]:
            def measure(report: Report) -> RoundAdapterMeans:
                from .means import round_means

                found = round_means(opened.round(number), products)
                if cost:
                    from .cost import with_cost

                    round_ = opened.round(number)
                    found = with_cost(found, round_, products, module, samples, source.compute, report)
                return found

            return WorkUnit(f"{opened.path}@{number}", RoundAdapterMeans, measure, opened.layout.size)

        def compute(attrs: dict[str, Any], work: Execution) -> AdapterMeans:
            with work.store(settings, *ROUNDS) as store:
                found = work.each(f"means of adapters of {opened.name}", map(task, asked), store)
            broken = {
                str(t): _diverged(opened, t) for t, own in zip(asked, found, strict=True) if isnan(own.cells[-1].norm)
            }
            said = {"diverged": broken} if broken else {}
            return AdapterMeans(tuple(cell for own in found for cell in own.cells), {**attrs, **said})

        return settings, compute

    # the cost is asked for after the means were looked at, and is another result
    name = f"adapters-{slug_rounds(asked_rounds or 'all')}{'-cost' if cost else ''}"
    return single_result(AdapterMeans, opened.path / "figures", name, prepare)


def _of_cost(source: EvaluationConfig) -> dict[str, tuple[Any, Any]]:
    """The settings that say how the cost is measured, with their defaults. Where it is measured changes no number."""
    usual = EvaluationConfig("test")
    plain = ("split", "limit", "seed", "precision", "standardise", "accept_data")
    given = {name.replace("_", "-"): (getattr(source, name), getattr(usual, name)) for name in plain}
    objects = {"base": source.base, "task": source.task}
    return given | {name: (name_of(str(one) if isinstance(one, Path) else one), None) for name, one in objects.items()}


def _diverged(run: Run, number: int) -> list[int]:
    """The clients of a round, by their ids, with a parameter that is not finite."""
    from ..draws.divergence import diverged_rows

    round_ = run.round(number)
    lost = diverged_rows(recorded_matrix(round_))
    return [int(k) for k, p in zip(round_.client_ids[lost], round_.weights[lost], strict=True) if p]


def required_adapters(run: Run) -> Adapters:
    """Return what the models of a run add.

    Raises:
        FedscopeError: they are no adapters; their factors are no pairs that multiply.
    """
    found = adapters_of_run(run)
    if found is not None:
        return found
    kinds = factors_in(run.layout.names)
    if unclear := unclear_factors(run.layout, settings_of_run(run.info)):
        raise FedscopeError(
            f"the adapters of {run.path} do not say how their factors multiply: {unclear}; {said_again(run)}, or "
            "merge them into their base"
        )
    if kinds:
        raise FedscopeError(
            f"the adapters of {run.path} are not only pairs of factors A and B ({', '.join(kinds)}): "
            f"{odd_one(run.layout)} is in no pair, so there is no mean of products; merge them into their base"
        )
    other = "consensus" if any(run.round(number).own_starts for number in run.rounds) else "updates"
    raise FedscopeError(
        f"the models of {run.path} are no LoRA adapters: no parameter is called lora_A, lora_B or alike; for other "
        f"models fedscope {other} says how far clients agree"
    )
