"""Accuracies before and after local training, of clients over rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ...checkpoints import FedscopeError
from ...checkpoints.io.errors import list_few
from ...results import ArrayResult, Serializable, along, pad_cohorts
from ...results.arrays import Variable
from ...results.labels import name_of_run
from ..draws.divergence import diverged_words

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

ACCURACIES = {
    "before_own": "accuracy of the start on the client's own data",
    "after_own": "accuracy of the client on its own data",
    "before_others": "accuracy of the start on the others' data",
    "after_others": "accuracy of the client on the others' data",
}
COUNTS = {
    "labels": "training samples of the client",
    "own": "samples that are the client's own",
    "others": "samples that are the others'",
}
DIVERGED = "1 for clients whose model is not finite"


@dataclass(frozen=True, eq=False)
class Answers(Serializable):
    """Counts of samples by client and true class, int64 [K, classes], for one ``round`` with ``client_ids`` [K].

    ``own``: samples that are the client's, ``others``: those that are not. Of these ``before_own`` and
    ``before_others`` are classified rightly by the model the clients were sent, ``after_own`` and ``after_others`` by
    the client's model after local training. ``labels``: how many training samples the client has, by class.
    ``diverged`` [K]: whether the client's model holds a NaN or an infinity.
    """

    round: int
    client_ids: Counts
    labels: Counts
    own: Counts
    others: Counts
    before_own: Counts
    after_own: Counts
    before_others: Counts
    after_others: Counts
    diverged: Flags


@dataclass(frozen=True, eq=False)
class Forgetting(ArrayResult):
    """Effect of local training on the clients of R rounds, at most K in each, by true class.

    Attributes:
        rounds: [R], ascending.
        client_ids: [R, K], -1 behind those of a round with fewer than K.
        labels: training samples of the client, [R, K, classes].
        own, others: samples measured on that are the client's own and the others', [R, K, classes]. Of training data
            its own are those it trained on, of test data those of classes that it trained on.
        before_own, after_own, before_others, after_others: shares of them classified rightly by the model that the
            clients were sent and by the client after local training, [R, K, classes]; NaN where there is no sample.
        diverged: clients whose model after local training holds a NaN or an infinity, bool [R, K]; where its outputs
            are NaN, they count as wrong.
        attrs: provenance: data, split, samples, seed, device, versions.
    """

    command = kind = "forgetting"
    needed = {
        **{"round": "round", "client_ids": "round client", "diverged": "round client"},
        **dict.fromkeys((*COUNTS, *ACCURACIES), "round client class"),
    }

    rounds: Counts
    client_ids: Counts
    labels: Counts
    own: Counts
    others: Counts
    before_own: Array
    after_own: Array
    before_others: Array
    after_others: Array
    diverged: Flags
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, answers: Sequence[Answers], attrs: Mapping[str, Any] | None = None) -> Self:
        """Return the result of one or more rounds.

        Raises:
            FedscopeError: no round.
        """
        if not answers:
            raise FedscopeError("there is no round to look at; give at least one")
        most = max(len(one.client_ids) for one in answers)

        def of_all(name: str, fill: int = 0, kind: type = np.int64) -> np.ndarray:
            return pad_cohorts([np.asarray(getattr(one, name), kind) for one in answers], most, fill, axes=1)

        counts = {name: of_all(name) for name in COUNTS}  # a client that is not there has no samples
        shares = {name: _share(of_all(name), counts[name.partition("_")[2]]) for name in ACCURACIES}
        arrays: dict[str, Any] = {**counts, **shares, "diverged": of_all("diverged", kind=np.bool_)}
        rounds = np.array([one.round for one in answers], np.int64)
        return cls(rounds, of_all("client_ids", -1), **arrays, attrs=dict(attrs or {}))

    @property
    def own_gain(self) -> Array:
        """Accuracy gained on the client's own data, all its samples alike, [R, K]; NaN where there are none."""
        return _mean_change(self.before_own, self.after_own, self.own)

    @property
    def others_loss(self) -> Array:
        """Accuracy lost on the others' data, all samples alike, [R, K]; NaN where there are none."""
        return _mean_change(self.after_others, self.before_others, self.others)

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Client-class pairs [R, K, classes] of which the start classifies some of the others' samples rightly."""
        return np.asarray(self.before_others > 0)

    @property
    def forgotten(self) -> npt.NDArray[np.bool_]:
        """Those of :attr:`known` of which the client classifies none."""
        return np.asarray(self.known & (self.after_others == 0))

    @property
    def there(self) -> Flags:
        """Which places hold a client, [R, K]: rounds may have cohorts of different sizes."""
        return np.asarray(self.client_ids >= 0)

    def diverged_in(self, i: int) -> list[int]:
        """Return the ids of the clients whose model is not finite in the i-th round."""
        return [int(client) for client in self.client_ids[i][self.diverged[i]]]

    def arrays(self) -> tuple[dict[str, Variable], dict[str, Variable]]:
        """Dimensions ``round``, ``client`` (place in the cohort) and ``class``, padded to the largest cohort: ids with
        -1, counts with 0, shares with NaN."""
        about = {**COUNTS, **ACCURACIES}
        variables = {
            "client_ids": along("round client", self.client_ids, "client, -1 for none"),
            **{name: along("round client class", getattr(self, name), words, "1") for name, words in about.items()},
            "diverged": along("round client", self.diverged, DIVERGED),
        }
        return {"round": along("round", self.rounds, "round")}, variables

    @classmethod
    def of_arrays(cls, values: dict[str, Any], attrs: dict[str, Any]) -> Self:
        """Build the result from what :meth:`arrays` gave."""
        diverged = np.asarray(values.pop("diverged"), np.bool_)
        return cls(values.pop("round"), **values, diverged=diverged, attrs=attrs)

    @property
    def run(self) -> str:
        """The run's name, "" where it is not known."""
        return name_of_run(self.attrs.get("run"))

    def summary(self) -> str:
        """Every round in words: what clients gain, what they lose, and what they forget."""
        return "\n".join(self._sentence(i) for i in range(len(self.rounds)))

    def _sentence(self, i: int) -> str:
        def shown(values: Array, sign: int) -> str:
            mean, stderr = (100 * float(value[i]) for value in mean_over_clients(values))
            if np.isnan(mean):
                return "unknown"
            return f"{sign * mean + 0.0:+.3g}" + ("" if np.isnan(stderr) else f" ± {stderr:.2g}") + " points"

        own, others = shown(self.own_gain, 1), shown(self.others_loss, -1)
        known, forgotten = int(self.known[i].sum()), int(self.forgotten[i].sum())
        begin = f"{self.run}, round {self.rounds[i]}: local training changes the accuracy on a client's own data by "
        diverged = diverged_words(self.diverged_in(i), int(self.rounds[i]))
        broken = f"; {diverged}, and NaN outputs count as wrong" if diverged else ""
        if not self.others[i].any():
            return f"{begin}{own} and no sample is the others' ({_over(self._count(self.own_gain, i))}){broken}"
        over = _over(self._count(self.own_gain, i), self._count(self.others_loss, i))
        sentence = (
            f"{begin}{own} and on the others' by {others} ({over}); {forgotten} of {known} pairs of client and class "
            "known before are forgotten entirely"
        )
        for samples, which in ((self.own, "own"), (self.others, "others'")):
            without = self.client_ids[i][self.there[i] & (samples[i].sum(axis=1) == 0)]
            if len(without):
                who = f"client{'s' if len(without) > 1 else ''} {list_few(without.tolist())}"
                sentence += f"; {who} without {which} samples here"
        return sentence + broken

    @staticmethod
    def _count(values: Array, i: int) -> int:
        """Count the clients that a mean of the i-th round is over."""
        return int((~np.isnan(values[i])).sum())

    def findings(self) -> dict[str, Any]:
        """Every round's means over clients, and the clients' own."""
        return {"rounds": [self._numbers(i) for i in range(len(self.rounds))]}

    def _numbers(self, i: int) -> dict[str, Any]:
        gain, loss = self.own_gain, self.others_loss
        means: dict[str, Any] = {"round": int(self.rounds[i])}
        for name, values in (("own_gain", gain), ("others_loss", loss)):
            mean, stderr = mean_over_clients(values)
            means |= {name: float(mean[i]), f"{name}_stderr": float(stderr[i])}
        there = self.there[i]
        clients = zip(*(values[i][there].tolist() for values in (self.client_ids, gain, loss)), strict=True)
        return {
            **means,
            "known": int(self.known[i].sum()),
            "forgotten": int(self.forgotten[i].sum()),
            "diverged": self.diverged_in(i),
            "clients": [{"client": k, "own_gain": own, "others_loss": others} for k, own, others in clients],
        }


def mean_over_clients(values: Array) -> tuple[Array, Array]:
    """Means [R] of values [R, K] over the clients that have one, and their standard errors over clients, s / √K with
    s² = Σ (x − x̄)² / (K − 1); NaN where there are too few.

    >>> mean, stderr = mean_over_clients(np.array([[1.0, 3.0, np.nan], [2.0, np.nan, np.nan]]))
    >>> mean.tolist(), stderr.tolist()
    ([2.0, 2.0], [1.0, nan])
    """
    there = ~np.isnan(values)
    count = there.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        known = np.where(there, values, 0.0)
        mean = known.sum(axis=1) / count
        # of gains and losses that cancel it is 0, and not the rounding of their sum
        mean = np.where(np.abs(mean) <= np.finfo(np.float64).eps * np.abs(known).sum(axis=1), 0.0, mean)
        squares = np.where(there, values - mean[:, None], 0.0) ** 2
        stderr = np.sqrt(squares.sum(axis=1) / (count - 1) / count)
    # of equal gains it is 0, and not the rounding of their mean
    equal = np.where(there, values, np.inf).min(axis=1) == np.where(there, values, -np.inf).max(axis=1)
    return mean, np.where(equal & (count > 1), 0.0, stderr)


def _over(*counts: int) -> str:
    """Say how many clients one or two means are over: once, where they are the same.

    >>> _over(4, 4), _over(1, 1)
    ('mean of 4 clients ± standard error', 'one client')
    >>> _over(4, 3)
    'means of 4 and 3 clients ± standard error'
    """
    different = list(dict.fromkeys(count for count in counts if count)) or [0]
    if different == [1]:
        return "one client"
    many = " and ".join(map(str, different))
    return f"mean{'s' if len(different) > 1 else ''} of {many} clients ± standard error"


def _share(right: Counts, of: Counts) -> Array:
    """right / of, NaN where there is none."""
    with np.errstate(invalid="ignore"):
        return np.asarray(right / of)


def _mean_change(before: Array, after: Array, samples: Counts) -> Array:
    """Σ_c n_c (after − before) / Σ_c n_c, [R, K]; NaN where the n are 0.

    n times a share is a count of samples, up to rounding, so these are summed as whole numbers: as many before as after
    make 0, and not what rounding leaves of shares of different classes.

    >>> share = lambda *counts: np.array([[np.array(counts) / (7, 3, 49)]])
    >>> _mean_change(share(3, 1, 21), share(2, 2, 21), np.array([[[7, 3, 49]]])).tolist()
    [[0.0]]
    """
    first, then = (np.rint(np.where(samples > 0, shares, 0.0) * samples).sum(axis=2) for shares in (before, after))
    with np.errstate(invalid="ignore"):
        return np.asarray((then - first) / samples.sum(axis=2))
