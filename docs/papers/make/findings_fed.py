"""Findings from the results of FedSWA and FedSA: three sentences each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import fedsa_rules as sa
import fedsa_runs
import fedswa
import fedswa_rules as swa
from kept import shown
from verdicts import borne, difference, points


def swa_starts(results: Path) -> tuple[str, str, str]:
    """FedSWA and FedMoSWA after few rounds."""
    of_fedswa, of_fedmoswa = swa.lead_of_fedswa(results), swa.leads(results)["FedAvg"]
    of_both = swa.lead_of_both(results)
    borne(
        of_fedswa.high < 0 < of_fedmoswa.high and of_fedmoswa.low < 0 and of_both.low < 0 < of_both.high,
        "FedSWA is behind FedAvg, and FedMoSWA from FedAvg, and its plain form from SCAFFOLD, are not apart",
    )
    rounds = fedswa.Scale().rounds
    return (
        f"We compare accuracies after {rounds} rounds on a tenth of CIFAR-10. FedSWA minus FedAvg is "
        f"{points(of_fedswa)}, and FedMoSWA minus FedAvg is {points(of_fedmoswa)}.",
        f"FedMoSWA with rho = alpha = 1 minus SCAFFOLD is {points(of_both)}; in the paper's ablation it is ahead.",
        f"The paper has {fedswa.ROUNDS:,} rounds and ResNet-18. So this shows how the methods start, not where they "
        "end.",
    )


def flatness(results: Path) -> tuple[str, str, str]:
    """The rise of the loss round the models."""
    found = swa.rises_of(results, fedswa.rises_of(fedswa.Scale()))

    def mean(values: Mapping[str, float]) -> float:
        return math.fsum(values.values()) / len(values)

    ours, usual, flattest = found["fedmoswa"], found["fma"], min(found.values(), key=lambda one: mean(one.rise))
    apart = difference("", usual.rise, ours.rise)
    accuracies = {name: mean(own) for name, own in swa.accuracies(results).items()}
    accuracy = accuracies["mofedsam"]
    borne(
        apart.low < 0 < apart.high and flattest is found["mofedsam"] and accuracy == min(accuracies.values()),
        "FedMoSWA is not apart from FedAvg, and the flattest models are those that have learnt least",
    )
    return (
        f"Around FedMoSWA's models, the training loss rises by {shown(ours.rise, 1, '.2g')} nats on average, around "
        f"FedAvg's by {shown(usual.rise, 1, '.2g')}. These are not apart; in the paper FedMoSWA's is the flattest.",
        f"The flattest here are MoFedSAM's ({shown(flattest.rise, 1, '.2g')}). Their accuracy, {100 * accuracy:.0f} %, "
        "is the lowest of the six.",
        "So flatness alone says nothing: compare it only between models that have learnt equally well.",
    )


def gathers(results: Path) -> tuple[str, str, str]:
    """Whether clients' models gather."""
    iid, skewed = sa.scattered(results, fedsa_runs.Scale().seeds).values()
    borne(iid.low > 1, "the clients' models spread on IID data")
    rounds = fedsa_runs.Scale().rounds
    return (
        "We measure the mean distance of the clients' models to their round's mean, relative to the first round. "
        f"After {rounds} rounds it is {iid.value:.1f} times as large ({iid.low:.1f} to {iid.high:.1f}) on IID data, "
        f"and {skewed.value:.1f} times ({skewed.low:.1f} to {skewed.high:.1f}) on skewed data.",
        "In the paper's maps, the models of IID clients gather during training. In ours they start together and "
        "spread; the paper has 1,000 rounds, so this does not test it yet.",
        "A t-SNE map has no distances, so models that gather in it need not be near each other. Measure the distance "
        "too.",
    )


def synergy(results: Path) -> tuple[str, str, str]:
    """FedSA against FedAvg, and against equal weights."""
    from fedscope import Comparison

    table = Comparison.load(results / "table1")
    usual, equal = sa.ahead(table, "fma", sa.DEPLOYED), sa.ahead_of_equal(results)
    found, (_, another, _) = sa.distances(results), sa.plain(results)
    borne(
        usual.low < 0 < usual.high and equal.low < 0 < equal.high,
        "FedSA is apart neither from FedAvg nor from equal weights",
    )
    count = len(found["FedSA"])
    return (
        f"The accuracy of FedSA minus that of FedAvg is {points(usual)}. Minus that of FedAvg with equal weights it is "
        f"{points(equal)}.",
        f"Of the {count} most skewed parameters, FedSA's value differs from the clients' plain mean in {another}.",
        "So at this size, FedSA is close to an average with equal weights for all clients.",
    )
