"""Models on a map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...analysis.analysis import (
    PreparedAnalysis,
    SettingsAndCompute,
    analysis,
    fit_file_name,
    single_result,
    slug_rounds,
)
from ...analysis.execution import Execution
from ...analysis.rounds import Rounds, parse_rounds
from ...analysis.run_identity import identities
from ...analysis.runs import RunLike, resolve_runs
from ...checkpoints import FedscopeError, Run, recorded_clients, rounds_with_clients
from ...checkpoints.models.layer_selections import layers_file_word
from ...checkpoints.models.layers import named_parameters
from ...evaluation.device import Compute
from ..adapters.recorded_adapters import about_products, adapters_of_run, warn_of_products
from .result import Embedding

#: so many models are shown where no rounds are asked for, all rounds of shorter runs
MODELS = 1000


@analysis
def embed(
    runs: RunLike | Sequence[RunLike],
    method: str = "tsne",
    *,
    rounds: Rounds = None,
    layers: str | Sequence[str] = (),
    perplexity: float | None = None,
    seed: int = 0,
    device: str = "auto",
) -> PreparedAnalysis[Embedding]:
    """A map of the clients' and global models of some rounds, from their exact distances, or where a round did not keep
    all of its clients' models, from sketches (``record.sketch``), and the error is said.

    ``pca``: the two directions in which the models differ most; ``tsne``: near models near each other. See
    :func:`~fedscope.decomposition.embedding.pca_and_tsne.project` and
    :func:`~fedscope.decomposition.embedding.gram.gram` for the formulas, and of sketches
    :func:`~fedscope.decomposition.embedding.sketched_gram.sketched_gram`.

    Args:
        runs: one, or several of one layout on one map; ``RUN@60`` is a run with ``rounds=60``.
        method: ``tsne`` or ``pca``.
        rounds: which, or ``all`` with their clients, or where no round has them with sketches; by default these, evenly
            thinned to a thousand models in all.
        layers: parameters, by their ``state_dict`` keys, or layers by name or pattern (``conv*``, ``/^blocks/``), that
            are compared; all by default. Sketches are of all.
        perplexity: of t-SNE, less than the number of models; by default 30, fewer of few models.
        seed: of t-SNE, which begins at the principal components and draws nothing: every seed makes one map.
        device: where distances are computed.

    Raises:
        FedscopeError: rounds or layers that do not exist, rounds without clients and sketches, layers of sketches, runs
            of different models or of one name, an unknown method, a perplexity that is not less than the number of
            models; models that are not finite, or all the same.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> fedscope.embed(run, method="pca").places.shape  # four clients and the global model, two rounds
    (10, 2)
    >>> folder.cleanup()
    """
    from .pca_and_tsne import known_method, refuse_few, settled_perplexity
    from .shown_models import known_layers, models_of
    from .sketched_gram import common_size, sketched_gram, told_from_sketches

    known_method(method)
    if method != "tsne" and perplexity is not None:
        raise FedscopeError(f"--perplexity {perplexity:g} belongs to t-SNE; leave it out with --embed {method}")
    opened, asked_rounds = resolve_runs(runs, rounds, adapters="products")
    warn_of_products(opened)
    adapters = adapters_of_run(opened[0])
    given = [layers] if isinstance(layers, str) else list(layers)
    names = named_parameters(opened[0].layout, given)
    asked = [
        (run, number)
        for run, of_run in zip(opened, asked_rounds, strict=True)
        for number in shown_rounds(run, of_run, MODELS // len(opened))
    ]
    sketched = told_from_sketches(asked)
    models = models_of(asked, sketched=sketched)
    k = common_size(models.rounds) if sketched else 0
    known_layers(models, names or None)
    if sketched and names:
        raise FedscopeError(
            f"--layer {names[0]}: {models.rounds[0].run_label} is computed from sketches, which add up all "
            "parameters of a "
            "model; leave it out, or ask for rounds that recorded their clients"
        )
    if sketched and adapters is not None:
        raise FedscopeError(
            f"{models.rounds[0].run_label} keeps only sketches of its clients' adapters, in which factors are not "
            "multiplied, so there is no distance between what they add; ask for rounds that recorded their clients"
        )
    refuse_few(models.points)
    if method == "tsne":
        settled_perplexity(len(models.points), perplexity)

    def prepare() -> SettingsAndCompute[Embedding]:
        where = Compute(device)
        settings: dict[str, Any] = {
            "run": identities(opened, asked),
            "rounds": [[run.name, number] for run, number in asked],
            "asked_layers": names,
            # nothing that is told from sketches is computed there
            "device": "cpu" if sketched else where.name,
            **({"sketch": k} if sketched else {}),
            **about_products(adapters),
        }
        drawing = {"method": method, "asked_perplexity": perplexity, "seed": seed}

        def compute(attrs: dict[str, Any], work: Execution) -> Embedding:
            from .adapter_gram import adapter_gram
            from .gram import gram
            from .pca_and_tsne import project

            with work.store(settings) as store, work.progress("embedding") as report:
                if sketched:
                    products = sketched_gram(asked, progress=report)
                elif adapters is not None:
                    products = adapter_gram(asked, layers=names or None, progress=report)
                else:
                    products = gram(asked, layers=names or None, compute=where, partial=store, progress=report)
                said = {"words": given} if given else {}
                return project(products, method, perplexity=perplexity, seed=seed, provenance={**attrs, **said})

        return {**settings, **drawing}, compute

    own = [slug_rounds(asked_rounds[0])] if asked_rounds[0] else []
    words = [method, *(run.name for run in opened[1:]), *own, *map(layers_file_word, given)]
    return single_result(Embedding, opened[0].path / "figures", f"embedding-{fit_file_name('-'.join(words))}", prepare)


def shown_rounds(run: Run, rounds: str | None, most: int) -> list[int]:
    """Those asked for; all with clients for ``all``, and for None evenly so many of these that ``most`` models fit.
    Where no round has its clients, those with sketches.

    Raises:
        FedscopeError: rounds that the run does not have; no round with clients, nor with sketches.
    """
    from .sketched_gram import has_sketches

    if rounds is not None and rounds.strip() != "all":
        return parse_rounds(rounds, run.rounds, str(run.path))
    have = rounds_with_clients(run) or tuple(t for t in run.rounds if has_sketches(run.round(t)))
    if not have and run.rounds and run.round("last").has_sample:
        recorded_clients(run, run.rounds[-1], start=False)  # says whose were recorded
    if not have:
        anew = "record it with keep='all'" if run.is_foreign else "train with record.clients = 'all'"
        raise FedscopeError(f"{run.path} recorded no round's clients; {anew}, or with sketches of their updates")
    if rounds is not None:
        return list(have)
    # with each round's clients come its global and its averaged model
    count = max(2, most // (len(run.round(have[0]).client_ids) + 2))
    if len(have) <= count:
        return list(have)
    return [have[round(i * (len(have) - 1) / (count - 1))] for i in range(count)]
