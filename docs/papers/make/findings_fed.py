"""Findings from FedSWA's results: three sentences each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import fedswa
import fedswa_rules as swa
from kept import shown
from verdicts import Number, borne, difference, said


def _points(number: Number) -> str:
    """A difference of accuracies with its interval."""
    low, high = (f"{100 * value:+.1f}" for value in (number.low, number.high))
    return f"{100 * number.value:+.1f} points ({low} to {high})"


def swa_starts(results: Path) -> tuple[str, str, str]:
    """FedSWA and FedMoSWA after few rounds."""
    all_six, one = swa.methods(results)
    (of_fedswa,) = one.numbers
    of_fedmoswa = next(number for number in all_six.numbers if number.where == "FedAvg")
    (of_both,) = swa.ablation(results)[-1].numbers
    borne(
        of_fedswa.high < 0 and of_fedmoswa.low < 0 < of_fedmoswa.high and of_both.low > 0,
        "FedSWA is behind FedAvg, FedMoSWA is not apart, and its plain form is ahead of SCAFFOLD",
    )
    rounds = fedswa.Scale().rounds
    return (
        f"After {rounds} rounds on a tenth of CIFAR-10 the accuracy of FedSWA minus that of FedAvg is "
        f"{_points(of_fedswa)}, and that of FedMoSWA {_points(of_fedmoswa)}.",
        f"FedMoSWA with rho = alpha = 1 is ahead of SCAFFOLD by {_points(of_both)}, as in the paper's ablation.",
        f"The paper has {fedswa.ROUNDS:,} rounds and ResNet-18, so this says how the methods start, and not where they "
        "end.",
    )


def flatness(results: Path) -> tuple[str, str, str]:
    """The rise of the loss round the models."""
    found = swa.rises_of(results, fedswa.rises_of(fedswa.Scale()))

    def mean(values: Mapping[str, float]) -> float:
        return math.fsum(values.values()) / len(values)

    ours, usual, flattest = found["fedmoswa"], found["fma"], min(found.values(), key=lambda one: mean(one.rise))
    apart = difference("", usual.rise, ours.rise)
    borne(
        apart.low < 0 < apart.high and flattest is found["mofedsam"] and not flattest.has_learnt,
        "FedMoSWA is not apart from FedAvg, and the flattest model has learnt nothing",
    )
    return (
        f"Round FedMoSWA's models the training loss rises by {shown(ours.rise, 1, '.2g')} nats on average, round "
        f"FedAvg's by {shown(usual.rise, 1, '.2g')}, which is not apart; the paper shows FedMoSWA's as the flattest.",
        f"The flattest here are MoFedSAM's ({shown(flattest.rise, 1, '.2g')}), whose training loss is "
        f"{said(mean(flattest.loss))} where chance is {said(math.log(10))}.",
        "So flatness alone says nothing: compare it between models that have learnt alike.",
    )
