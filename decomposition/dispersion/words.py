"""Dispersion in words and plain numbers."""

from __future__ import annotations

from typing import Any

from .records import LayerDispersion, RoundDispersion
from .result import most_skewed
from .skew_test import FEWEST


def round_sentence(one: RoundDispersion, fdr: float) -> str:
    """A round in words; what does not exist is said.

    >>> layer = LayerDispersion("fc.weight", 4, 1, 0, 0, 0.5, 0.25, 0.9, 0, 0, -1.0, 0.25)
    >>> print(round_sentence(RoundDispersion("fma", 3, 5, (layer,), layer), 0.05))
    fma, round 3: of 4 parameters over 5 clients (1 constant) the median cv is 0.25, 25 % are of high dispersion, the \
mean |skewness| is 0.9; no test of skewness, which needs 8 clients
    """
    whole = one.whole
    said = (
        f"{one.run}, round {one.round}: of {whole.parameters:,} parameters over {one.clients} clients"
        f"{_left_out(whole)} {_shown('the median cv is', whole.median_cv)}, "
        f"{_share(whole.high_share)} of high dispersion, "
    )
    if one.clients < 3:
        return f"{said}no skewness, which needs 3 clients, and no test of it, which needs {FEWEST}"
    said += _shown("the mean |skewness| is", whole.skew_mean_abs)
    if one.clients < FEWEST:
        return f"{said}; no test of skewness, which needs {FEWEST} clients"
    if whole.skew_rejected_share is None:
        return f"{said}; no test of skewness, because no parameter can be tested"
    rate = f"{100 * fdr:g} %"
    share = f"{100 * whole.skew_rejected_share:.3g} %"
    said += f"; skewness is rejected for {share} (false discovery rate {rate} over the model)"
    most = next((layer for layer in one.layers if layer.layer == most_skewed(one)), None)
    if most is not None and most.rejected:
        said += f", and with {rate} within each layer most in {most.layer}: {most.rejected:,} of {most.tested:,}"
    return said


def _left_out(whole: LayerDispersion) -> str:
    words = [
        f"{count:,} {what}"
        for count, what in (
            (whole.constant, "constant"),
            (whole.zero_mean, "with a mean of 0, without a cv"),
            (whole.nonfinite, "NaN or infinite in some client"),
        )
        if count
    ]
    return f" ({', '.join(words)})" if words else ""


def _shown(words: str, value: float | None) -> str:
    return f"{words} {'unknown' if value is None else f'{value:.3g}'}"


def _share(value: float | None) -> str:
    return "an unknown share is" if value is None else f"{100 * value:.3g} % are"


def round_numbers(one: RoundDispersion) -> dict[str, Any]:
    """A round's numbers, for --json."""

    def numbers(row: LayerDispersion) -> dict[str, Any]:
        return {**vars(row), "skew_rejected_share": row.skew_rejected_share}

    layers = [numbers(row) for row in one.layers]
    return {"run": one.run, "round": one.round, "clients": one.clients, "layers": layers, "all": numbers(one.whole)}
