"""One pass over the samples with the model that clients were sent and the models they made of it."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import torch

from ...checkpoints import FedscopeError, Partition, Round, Weights
from ...evaluation.samples import Samples
from ...evaluation.tasks import require_classes
from ...evaluation.validation import with_outputs
from ...training.data.membership import Members, members_of, of_classes
from ..draws.divergence import diverged_rows
from ..factors.model_outputs import PassSettings, model_outputs
from .result import ACCURACIES, Answers, Counts

# A multiple of the batches that suit convolutions (50) and linear layers (1000) on a CPU, so that none is a remainder.
CHUNK = 2000
COUNTED = ("own", "others", *ACCURACIES)


def count_answers(
    module: torch.nn.Module,
    samples: Samples,
    start: Weights,
    clients: Weights,
    members: Members | None,
    *,
    number: int,
    client_ids: Counts,
    labels: Counts,
    **how: Unpack[PassSettings],
) -> Answers:
    """Count the samples of every class that the start and every client classify rightly, among the client's own and
    others'.

    With m_k(x, y) = 1 where a sample counts as client k's own,

        own[k, c]       = #{j : y_j = c, m_k(x_j, y_j) = 1}
        after_own[k, c] = #{j : y_j = c, m_k(x_j, y_j) = 1, argmax f(x_j; w_k) = c}

    alike with the start's w for ``before_own``, and with m_k = 0 for ``others``. A row of outputs with a NaN counts as
    misclassified, as in :class:`~fedscope.evaluation.evaluator.Evaluator`, whose error is 1 − Σ_c (after_own +
    after_others) / n.

    Samples are streamed, and of the outputs only what is right is kept: O(K chunk) numbers in addition to the models
    and ``members``.

    Args:
        module: the architecture; its own parameters are not used and not changed.
        samples: the n samples.
        start: the model [P] that the clients were sent.
        clients: their models after local training, [K, P].
        members: m_k for the rows of ``samples``, bool [K, n]
            (:func:`~fedscope.training.data.membership.membership_train`,
        :func:`~fedscope.training.data.membership.membership_labels`); None where every sample counts as everyone's own.
        number: of the round. client_ids: [K].
        labels: training samples of the clients by class, [K, classes].
        how: ``compute``, ``progress`` and ``chunk``, of the pass over the samples
            (:class:`~fedscope.decomposition.factors.model_outputs.PassSettings`).

    Raises:
        FedscopeError: models, members or labels that do not fit.

    >>> from fedscope.checkpoints import Layout
    >>> module = torch.nn.Linear(1, 2, bias=False)
    >>> samples = Samples(torch.ones(3, 1), torch.tensor([0, 1, 1]), 2, "toy", "train", np.arange(3))
    >>> start = Weights(Layout.of(module), np.array([1, 0], np.float32), {})
    >>> clients = Weights(start.layout, np.array([[0, 1]], np.float32), {})
    >>> ids, own = np.array([4]), np.array([[False, True, False]])
    >>> right = count_answers(module, samples, start, clients, own, number=1, client_ids=ids, labels=np.array([[0, 1]]))
    >>> right.others.tolist(), right.before_others.tolist(), right.after_others.tolist()
    ([[1, 1]], [[1, 0]], [[0, 1]])
    """
    require_classes(samples, "forgetting")
    samples = with_outputs(module, samples)
    n, count, classes = len(samples), len(client_ids), samples.classes
    shapes = {"clients": (len(clients),), "labels": np.shape(labels)}
    wanted = {"clients": (count,), "labels": (count, classes)}
    if members is not None:
        shapes["members"], wanted["members"] = members.shape, (count, n)
    for name, shape in shapes.items():
        if shape != wanted[name]:
            raise FedscopeError(
                f"{name} of round {number} has shape {list(shape)}, but its {count} client_ids, {n} samples and "
                f"{classes} classes need {list(wanted[name])}"
            )
    models, named = [start, *map(clients.row, range(count))], {"the start model": start, "the client model": clients}
    settings: PassSettings = {"chunk": CHUNK, **how}
    totals = np.zeros((6, count, classes))
    for rows, outputs in model_outputs(module, samples, models, named, number=number, **settings):
        y = samples.y[rows].cpu()
        right = _right(outputs, y)
        mine = np.ones((count, len(y)), np.bool_) if members is None else np.asarray(members)[:, rows]
        of_class = (y.numpy()[:, None] == np.arange(classes)).astype(np.float64)  # of no class where it is ignored
        before, after = right[:1], right[1:]
        # in the order of COUNTED
        which = (mine, ~mine, mine & before, mine & after, ~mine & before, ~mine & after)
        for total, chosen in zip(totals, which, strict=True):
            total += chosen @ of_class
    counts = dict(zip(COUNTED, totals.astype(np.int64), strict=True))
    whose, training = np.asarray(client_ids, np.int64), np.asarray(labels, np.int64)
    return Answers(number, whose, training, **counts, diverged=diverged_rows(clients))


def round_answers(
    module: torch.nn.Module, samples: Samples, round_: Round, partition: Partition, **settings: Any
) -> Answers:
    """Compute the right answers of a recorded round; a client's own samples are those that it trained on, of test data
    those of its classes. ``settings`` are those of :func:`count_answers`."""
    ids, samples = round_.client_ids, with_outputs(module, samples)
    return count_answers(
        module,
        samples,
        round_.read("start"),
        round_.clients(),
        members_of(partition, ids, samples),
        number=round_.number,
        client_ids=ids,
        labels=of_classes(partition.label_counts[ids], samples.classes),
        **settings,
    )


def _right(outputs: torch.Tensor, y: torch.Tensor) -> np.ndarray:
    """Find the rows of outputs [M, B, classes] that have their greatest at y [B]: bool [M, B]."""
    # argmax takes a NaN for the greatest value, which would make a broken model right now and then
    right = (outputs.argmax(dim=-1) == y) & ~outputs.isnan().any(dim=-1)
    return np.asarray(right.numpy())
