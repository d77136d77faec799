"""Analysis: the parameters clients disagree about, and the clients that disagree alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from ...analysis.analysis import PreparedAnalysis, SettingsAndCompute, analysis, single_result
from ...analysis.execution import Execution
from ...analysis.rounds import Rounds, larger_cohort
from ...analysis.run_identity import identity
from ...analysis.runs import RunLike, one_round
from ...checkpoints import FedscopeError
from ...checkpoints.io.number_words import exact
from .result import Synergy


@analysis
def synergy(
    run: RunLike,
    *,
    rounds: Rounds = None,
    classes: int = 4,
    clusters: int = 4,
    cv_threshold: float = 0.2,
    sim_threshold: float = 0.2,
    similarity: Literal["model", "layer"] = "model",
    quantile: float | None = None,
    seed: int = 0,
) -> PreparedAnalysis[Synergy]:
    """Find the parameters that a round's clients disagree about, and whether clients with like labels disagree alike.

    FedSA's diagnosis (high dispersion, micro-classes MIC, clusters MAC and their weights), whatever method trained the
    run; see :func:`~fedscope.decomposition.synergy.diagnosis.synergy` for the formulas and
    :class:`~fedscope.decomposition.synergy.label_agreement.LabelAgreement` for the labels. A layer of all clients is
    read at once: at most 0.19 GB for 20 of ResNet-18.

    Args:
        run: ``RUN@40``, or a run with ``rounds=40``.
        rounds: the one round.
        classes: C, micro-classes of squared deviations.
        clusters: S, the most clusters of clients.
        cv_threshold: scaled coefficient of variation above which a parameter is high.
        sim_threshold: similarity above which a client joins one of S clusters.
        similarity: over what clients are compared and clustered, the ``model`` or each ``layer`` (FedSA's server).
        quantile: of the coefficient of variation, which is scaled to 1; by default its maximum, as in the paper.
        seed: draws the permutations of the p-values.

    Raises:
        FedscopeError: no round, or one without clients or with a single one; a criterion out of range.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> fedscope.synergy(run).client_ids.tolist()
    [0, 1, 2, 3]
    >>> folder.cleanup()

    Source: Wang, Liao, Yuan and Zhang, "The Key of Parameter Skew in Federated Learning", arXiv 2408.11278, 2024.
    """
    from ...training.methods.shared.client_groups import Criteria

    opened, round_ = one_round(run, rounds, adapters="numbers")
    if len(round_.client_ids) < 2:
        raise FedscopeError(
            f"{opened.path}@{round_.number} has a cohort of one, so there is nobody to disagree with; "
            f"{larger_cohort(opened)}"
        )
    criteria: dict[str, Any] = {
        **{"classes": classes, "clusters": clusters, "cv_threshold": cv_threshold},
        **{"sim_threshold": sim_threshold, "similarity": similarity, "quantile": quantile},
    }
    Criteria(**criteria)  # refuses what is out of range before anything is read

    def prepare() -> SettingsAndCompute[Synergy]:
        def compute(attrs: dict[str, Any], work: Execution) -> Synergy:
            from .diagnosis import synergy
            from .label_agreement import with_labels

            about = {**attrs, "source": f"{opened.name}@{round_.number}"}
            result = synergy(round_, **criteria, keep_masks=True, provenance=about)
            if opened.partition is None:
                return result
            if opened.partition.label_counts.shape[1] == 1:  # nothing to agree with
                return replace(result, attrs={**result.attrs, "without_classes": True})
            return with_labels(result, opened.partition.counts_of(round_.client_ids), seed)

        return {
            "run": identity(opened, [round_.number]),
            "round": round_.number,
            "asked": criteria,
            "seed": seed,
        }, compute

    scale = "" if quantile is None else f"-q{exact(quantile)}"
    name = f"synergy-{round_.number}{scale}{'-layer' if similarity == 'layer' else ''}"
    return single_result(Synergy, opened.path / "figures", name, prepare)
