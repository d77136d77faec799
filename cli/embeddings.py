"""What ``fedscope disperse --embed`` does: models of recorded rounds on a map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..asking.runs import parse_rounds
from .options import Output

if TYPE_CHECKING:
    from ..checkpoints import Run
    from ..decomposition.embedding import Embedding

#: so many models are shown where no rounds are asked for, all rounds of shorter runs
MODELS = 1000


@dataclass(frozen=True)
class Asked:
    """A map of models, as it was asked for.

    Attributes:
        rounds: runs and numbers of rounds whose clients were recorded.
        method: ``tsne`` or ``pca``.
        perplexity: None for the default.
        layers: parameters that are compared; none for all.
        name: what a file is called that was given no name.
    """

    rounds: tuple[tuple[Run, int], ...]
    method: str
    perplexity: float | None
    layers: tuple[str, ...]
    seed: int
    device: str
    name: str

    @property
    def runs(self) -> list[Run]:
        """Each once."""
        return list({run.path: run for run, _ in self.rounds}.values())


def asked_of(
    runs: Sequence[Path],
    rounds: str | None,
    method: str,
    *,
    perplexity: float | None = None,
    layers: Sequence[str] = (),
    seed: int = 0,
    device: str = "auto",
) -> Asked:
    """From words to a question; what cannot be answered is refused before anything is computed.

    Args:
        rounds: ``1,20,last``; ``all`` that have clients; None for these, evenly thinned to a thousand models in all.

    Raises:
        FedscopeError: rounds or layers that do not exist, rounds without clients, runs of different models or of one
            name, an unknown method, a perplexity that is not less than the number of models.
    """
    from ..asking.names import fitting, slug
    from ..asking.runs import open_runs
    from ..checkpoints import FedscopeError
    from ..decomposition.embedding.maps import known_method, settled_perplexity
    from ..decomposition.embedding.points import known_layers, models_of
    from ..decomposition.embedding.result import refuse_few
    from ..training import resolve_device

    known_method(method)
    if method != "tsne" and perplexity is not None:
        raise FedscopeError(f"--perplexity {perplexity:g} belongs to t-SNE; leave it out with --embed {method}")
    opened = open_runs(runs)
    names = [run.name for run in opened]
    asked = tuple((run, number) for run in opened for number in _rounds(run, rounds, MODELS // len(opened)))
    models = models_of(asked)
    known_layers(models, layers or None)
    refuse_few(models.points)
    if method == "tsne":
        settled_perplexity(len(models.points), perplexity)
    parts = [method, *names[1:], *([slug(rounds)] if rounds else []), *(layer.replace("/", "-") for layer in layers)]
    return Asked(asked, method, perplexity, tuple(layers), seed, resolve_device(device), fitting("-".join(parts)))


def embedded(asked: Asked, output: Output) -> Embedding:
    """The map: read back where it exists, else computed and saved as BASE.embedding.csv and BASE.embedding.json.

    Raises:
        FedscopeError: models that are not finite, or all the same; another result in the way.
    """
    from ..asking.runs import identity
    from ..checkpoints import Partial, versions
    from ..decomposition.embedding import Embedding, embed, gram
    from .progress import progress
    from .results import PAGE, kinds, obtain

    question: dict[str, Any] = {
        "run": [identity(run) for run in asked.runs],
        "rounds": [[run.name, number] for run, number in asked.rounds],
        "asked_layers": list(asked.layers),
        "device": asked.device,
    }
    own = {"method": asked.method, "asked_perplexity": asked.perplexity, "seed": asked.seed}

    def compute(attrs: dict[str, Any], partial: Path) -> Embedding:
        with Partial(partial, {**question, "versions": versions()}) as store, progress("embedding") as report:
            made = gram(asked.rounds, layers=asked.layers or None, device=asked.device, partial=store, progress=report)
            return embed(made, asked.method, perplexity=asked.perplexity, seed=asked.seed, provenance=attrs)

    base = base_of(asked, output)
    main = Path(f"{base}.embedding.json")
    taken = kinds(Path(f"{base}.embedding"), "csv", *PAGE)
    return obtain(
        compute, lambda _: Embedding.load(base), lambda made: made.save(base), main, {**question, **own}, output, taken
    )


def tell(asked: Asked, result: Embedding, output: Output) -> None:
    """Draw BASE.embedding.pdf, .png and .html, and say what was found and where it lies."""
    from ..decomposition.embedding import sentence
    from .results import figures, say

    base = Path(f"{base_of(asked, output)}.embedding")
    drawn = figures(base, result.figure(output.inches, output.title), result.page(output.title))
    written = [Path(f"{base}.csv"), Path(f"{base}.json"), *drawn]
    say(sentence(result), written, as_json=output.as_json, **as_numbers(result))


def base_of(asked: Asked, output: Output) -> Path:
    """--out, else ``RUN/figures/embedding-<what>`` in the first run."""
    return output.out or asked.runs[0].path / "figures" / f"embedding-{asked.name}"


def as_numbers(result: Embedding) -> dict[str, Any]:
    """The map's numbers, for --json."""
    names = ("method", "trustworthiness", "neighbours", "explained", "perplexity", "kl_divergence")
    spreads = [{"run": run, "round": number, "mean": mean} for run, number, mean in result.spreads]
    return {"models": len(result.points), **{name: getattr(result, name) for name in names}, "spreads": spreads}


def _rounds(run: Run, rounds: str | None, most: int) -> list[int]:
    """Those asked for; all with clients for ``all``, and for None evenly so many of these that ``most`` models fit."""
    from ..checkpoints import FedscopeError, rounds_with_clients

    if rounds is not None and rounds.strip() != "all":
        return parse_rounds(rounds, run.rounds, str(run.path))
    have = rounds_with_clients(run)
    if not have:
        raise FedscopeError(f"{run.path} recorded no round's clients; train with record.clients = 'all'")
    if rounds is not None:
        return list(have)
    # with each round's clients come its global and its averaged model
    count = max(2, most // (len(run.round(have[0]).client_ids) + 2))
    if len(have) <= count:
        return list(have)
    return [have[round(i * (len(have) - 1) / (count - 1))] for i in range(count)]
