"""CKA between all pairs of models on the same samples: a round's clients, or any models."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from threading import Event
from typing import TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from ...checkpoints import FedscopeError, Model, Weights
from ...evaluation.accelerators import refuse_without_memory
from ...evaluation.device import CPU, Compute, run_in_workers, torch_threads
from ...evaluation.evaluator import Evaluator
from ...evaluation.float64 import where_float64
from ...evaluation.resumable import provenance_of
from ...evaluation.samples import Samples
from ...evaluation.standard_tasks import PADDED, Sequences
from ...evaluation.tasks import Task
from ...evaluation.validation import fits_module
from .activations import Activations, refuse_unknown
from .hsic import Array, Estimator, cka, gram, hsic, jackknife, masked_columns, minibatches
from .model_result import ModelCKA
from .result import OUTPUT, RoundCKA

Progress = Callable[[int, int], None]


class PairSettings(TypedDict, total=False):
    """Settings of the similarity of pairs.

    Attributes:
        layers: submodules by name, or ``output``, what the module returns (logits), the default.
        estimator: of HSIC, ``unbiased`` by default.
        batch: samples of a minibatch, at most, 256 by default; the biased estimate depends on it. Of sequences a
            minibatch has so many, and of their positions that count, which are the samples of HSIC, so many are drawn.
        seed: of the one shuffle of the samples before they are cut into minibatches.
        progress: told (forward passes of a minibatch done, in all).
    """

    layers: Sequence[str]
    estimator: Estimator
    batch: int
    seed: int
    progress: Progress | None


def round_similarity(
    module: nn.Module,
    samples: Samples,
    clients: Weights,
    *,
    number: int,
    client_ids: np.ndarray,
    globals_: Weights | None = None,
    compute: Compute = CPU,
    **settings: Unpack[PairSettings],
) -> tuple[RoundCKA, ...]:
    """Linear CKA between all pairs of a round's clients, and of each with the round's global model; one a layer.

    With X_a [n, d] the outputs of a layer of model a for the samples of a minibatch and H_ab the mean over minibatches
    of the HSIC of X_a X_a' and X_b X_b' (:func:`~fedscope.decomposition.cka.hsic`),

        CKA_ab = H_ab / sqrt(H_aa H_bb)

    The HSICs are averaged first, so the unbiased estimates stay so. Standard errors of the means: jackknife over
    minibatches; of the pairs of clients themselves they say nothing.

    Args:
        clients: [C, P], C >= 2.
        number: of the round; goes into the result, as ``client_ids`` [C] do.
        globals_: the round's global model [P]; None where it was not recorded.
        settings: see :class:`~fedscope.decomposition.cka.pairs.PairSettings`.

    Raises:
        FedscopeError: fewer than two clients, or as many ids; models that do not fit; layers that do not exist or
            return no features; fewer samples than the estimator needs.
    """
    if len(clients) < 2 or len(client_ids) != len(clients):
        raise FedscopeError(
            f"similarity is between two clients at least, but round {number} has {len(clients)} and "
            f"{len(client_ids)} ids; give more"
        )
    models = [clients.row(i) for i in range(len(clients))] + ([globals_] if globals_ is not None else [])
    evaluator = Evaluator(module, samples, compute=compute)
    for model in (clients, *models[len(clients) :]):
        if difference := evaluator.layout.difference(model.layout):
            raise FedscopeError(f"the models of round {number} do not fit the module: {difference}")
    every = batch_hsics(evaluator, module, models, **settings)
    return tuple(_round(values, number, np.asarray(client_ids, np.int64)) for values in every)


def model_similarity(
    module: nn.Module,
    samples: Samples,
    models: Sequence[Model],
    *,
    layers: Sequence[str] = (OUTPUT,),
    estimator: Estimator = "unbiased",
    batch: int = 256,
    seed: int = 0,
    compute: Compute = CPU,
    progress: Progress | None = None,
    provenance: Sequence[dict[str, object]] | None = None,
) -> tuple[ModelCKA, ...]:
    """Linear CKA between all pairs of models, one matrix a layer; see :func:`round_similarity`.

    Args:
        models: two or more, of any rounds and runs.
        provenance: goes into ``attrs``, one mapping a layer.

    Raises:
        FedscopeError: fewer than two models, two of one name, and as :func:`round_similarity`.
    """
    if len(models) < 2:
        raise FedscopeError(f"similarity is between two models at least, but there are {len(models)}; give more")
    evaluator = Evaluator(module, samples, compute=compute)
    fits_module(evaluator.layout, models)
    labels = tuple(model.label for model in models)
    given = provenance if provenance is not None else [{}] * len(layers)
    asked = {"estimator": estimator, "batch": batch, "shuffle_seed": seed}
    # refuses labels that cannot be told apart, before anything is computed
    empty = ModelCKA(labels, np.full((len(models), len(models)), np.nan), np.full((len(models), len(models)), np.nan))
    weights = [model.weights for model in models]
    every = batch_hsics(evaluator, module, weights, layers, estimator, batch, seed, progress)
    return tuple(
        ModelCKA(
            empty.labels,
            cka(values.mean(axis=0)),
            jackknife(values, cka),
            {"layer": layer, **asked, "batches": len(values), **provenance_of(evaluator, samples, models, own)},
        )
        for layer, values, own in zip(layers, every, given, strict=True)
    )


def batch_hsics(
    evaluator: Evaluator,
    module: nn.Module,
    models: Sequence[Weights],
    layers: Sequence[str] = (OUTPUT,),
    estimator: Estimator = "unbiased",
    batch: int = 256,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Array]:
    """HSIC of all pairs of models on every minibatch of the evaluator's samples, [B, M, M] a layer.

    Every worker passes a minibatch through one model at a time and makes its kernels [n, n]; of those of all models
    the HSICs are made here. In memory are the kernels of one minibatch and few more, [M + 16 a worker, n, n] in
    float64 a layer, and the features of one model a worker.

    Raises:
        FedscopeError: see :func:`round_similarity`.
    """
    refuse_unknown(module, layers)
    inputs, targets, learnt = evaluator.samples.x, evaluator.samples.y, evaluator.samples.task
    cut = minibatches(len(inputs), batch, seed, estimator)
    make = partial(Activations, module, tuple(layers), evaluator.compute, evaluator.batch, learnt)
    kept = [_positions(learnt, targets[torch.from_numpy(rows)], batch, seed + b) for b, rows in enumerate(cut)]

    compute = evaluator.compute
    # where kernels are made
    sums = where_float64(compute).device

    def items() -> Iterator[tuple[Tensor, Tensor, Tensor | None, Weights]]:
        for rows, some in zip(cut, kept, strict=True):
            at = torch.from_numpy(rows).to(inputs.device)
            x, y = inputs[at], targets[at]
            if compute.is_gpu:  # sent once for all models
                x = x.to(compute.device)
            for model in models:
                yield x, y, some, model

    def task(
        item: tuple[Tensor, Tensor, Tensor | None, Weights], activations: Activations, stop: Event
    ) -> list[tuple[Tensor, Tensor | None]]:
        x, y, some, model = item
        features = activations.of(model, x, y)
        if some is not None:
            features = {layer: [torch.cat(parts)[some]] for layer, parts in features.items()}
        # a layer's features are let go before the next one's kernel is made
        return [kernel_of(layer, features.pop(layer)) for layer in layers]

    def kernel_of(layer: str, parts: list[Tensor]) -> tuple[Tensor, Tensor | None]:
        """With the classes that the model masks, which only what it returns has: elsewhere an infinity is none."""
        masked = masked_columns(parts) if layer == OUTPUT else None
        return gram([part.to(sums) for part in parts], None if masked is None else masked.to(sums)), masked

    def here() -> Generator[list[tuple[Tensor, Tensor | None]], None, None]:
        """Without a worker that is ahead: what a device has to hold is always the same."""
        activations, never = make(), Event()
        yield from (task(item, activations, never) for item in items())

    every: list[list[Array]] = [[] for _ in layers]
    # the products of this thread in one thread, too: their sums do not depend on how many cores there are
    with (
        torch_threads(1),
        refuse_without_memory(
            compute.device,
            f"hold the kernels of {len(models)} models on {max(map(len, cut)):,} samples",
            "give a smaller --batch, fewer models, or --device cpu",
        ),
        closing(
            here() if compute.is_gpu else run_in_workers(task, items(), make=make, workers=compute.workers)
        ) as results,
    ):
        for b, rows in enumerate(cut):
            some = kept[b]
            size = len(rows) if some is None else len(some)
            shape = (len(models), size, size)
            kernels = [torch.empty(shape, dtype=torch.float64, device=sums) for _ in layers]
            masks: list[list[Tensor]] = [[] for _ in layers]
            for i in range(len(models)):
                for kernel, seen, (own, masked) in zip(kernels, masks, next(results), strict=True):
                    kernel[i] = own
                    seen += [masked] if masked is not None else []
                if progress is not None:
                    progress(b * len(models) + i + 1, len(cut) * len(models))
            for values, kernel, seen in zip(every, kernels, masks, strict=True):
                kernel[_masked_alone(seen)] = torch.nan
                values.append(hsic(kernel, estimator))
    return [np.stack(values) for values in every]


def _masked_alone(masks: Sequence[Tensor]) -> list[int]:
    """Find the models that mask a class which others do not: that is no mask, but a model that diverged.

    >>> _masked_alone([torch.tensor([True, False]), torch.tensor([True, True])])
    [1]
    """
    if not masks:
        return []
    common = torch.stack(list(masks)).all(dim=0)
    return [i for i, own in enumerate(masks) if bool((own & ~common).any())]


def _positions(learnt: Task, y: Tensor, most: int, seed: int) -> Tensor | None:
    """Find the positions of a minibatch's sequences that are its samples, at most so many; None where samples are."""
    if not isinstance(learnt, Sequences):
        return None
    count = int((y != PADDED).sum())  # and not their weights, which a criterion may give them
    drawn = np.random.default_rng([seed, count]).permutation(count)[:most]
    return torch.from_numpy(np.sort(drawn))


def _round(values: Array, number: int, ids: np.ndarray) -> RoundCKA:
    """A round's numbers from HSICs [B, M, M], where model C, if there is one, is the global one."""
    size, hsics = len(ids), values.mean(axis=0)
    matrix, has_global = cka(hsics), len(hsics) > size
    upper = np.triu_indices(size, 1)

    def between(hsics: Array) -> Array:
        mean: Array = cka(hsics)[..., upper[0], upper[1]].mean(axis=-1)
        return mean

    def with_global(hsics: Array) -> Array:
        mean: Array = cka(hsics)[..., :size, size:].mean(axis=(-2, -1))
        return mean

    return RoundCKA(
        round=number,
        client_ids=ids,
        cka=matrix[:size, :size],
        cka_global=matrix[:size, size] if has_global else np.full(size, np.nan),
        mean=float(between(hsics)),
        mean_stderr=float(jackknife(values, between)),
        mean_global=float(with_global(hsics)) if has_global else float("nan"),
        mean_global_stderr=float(jackknife(values, with_global)) if has_global else float("nan"),
    )
