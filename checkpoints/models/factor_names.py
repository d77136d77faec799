"""Names of the tensors of low-rank adapters: which are factors of a product, of what rank, and what only scales it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

from ..io.errors import list_few
from .weights import Layout

#: LoRA and DoRA (PEFT, kohya, diffusers, loralib, classes of one's own), LoHa, LoKr, VeRA, AdaLoRA and other kinds of
#: PEFT's that multiply what they train; and the dimension that is the rank
_RANK_IS = {
    "lora_A": 0,
    "lora_B": 1,
    "lora_a": 0,
    "lora_b": 1,
    "lora_embedding_A": 0,
    "lora_embedding_B": 1,
    "loraA": 0,
    "loraB": 1,
    "lora_down": 0,
    "lora_up": 1,
    "lora.down": 0,
    "lora.up": 1,
    "lora_layer.down": 0,
    "lora_layer.up": 1,
    "lora_linear_layer.down": 0,
    "lora_linear_layer.up": 1,
    # a module called lora with A [in, r] and B [r, out], or with two layers a and b, as tutorials have it
    "lora.A": 1,
    "lora.B": 0,
    "lora.a": 1,
    "lora.b": 0,
    "lora_matrix_A": 0,
    "lora_matrix_B": 1,
    "lora_right": 1,
    "lora_left": 0,
    "lora_right_weight": 1,  # DeepSpeed-Chat
    "lora_left_weight": 0,
    "hada_w1_a": 1,
    "hada_w1_b": 0,
    "hada_w2_a": 1,
    "hada_w2_b": 0,
    "lokr_w1": None,
    "lokr_w2": None,
    "lokr_w1_a": 1,
    "lokr_w1_b": 0,
    "lokr_w2_a": 1,
    "lokr_w2_b": 0,
    "lora_E": 0,
    "lora_diag": None,  # of KaSA, between A and B
    "lora_mid": 0,  # between both, of convolutions
    "lora_magnitude_vector": None,
    "dora_scale": None,
    "vera_lambda_b": None,
    "vera_lambda_d": None,
    "pvera_lambda_b": None,
    "pvera_lambda_d": None,
    "randlora_lambda": 0,  # as VeRA: both weigh matrices that are drawn once
    "randlora_gamma": None,
    "delora_A": 0,
    "delora_B": 1,
    "delora_lambda": None,
    "gralora_A": None,  # block by block
    "gralora_B": None,
    "gralora_A_general": None,
    "gralora_B_general": None,
    "hira_A": 0,  # their product times the weights, number by number
    "hira_B": 1,
    "hira_embedding_A": 0,
    "hira_embedding_B": 1,
    "lily_A": None,  # which layers share, weighed by a router
    "lily_B": None,
    "lily_router": None,
    "peanut_A": 0,  # and layers between them
    "peanut_B": 1,
    "peanut_encoders": None,
    "peanut_decoders": None,
    "glora_A": None,
    "glora_B": None,
    "glora_C": None,
    "glora_D": None,
    "glora_E": None,
    "deft_P": 1,
    "deft_R": 0,
    "adamss_A": None,
    "adamss_B": None,
    "poly_lora_A": None,  # of several, mixed by a router
    "poly_lora_B": None,
    "poly_router": None,
    "supertuning_lora_A": 0,
    "supertuning_lora_B": 1,
    "osf_svd_params": None,
}
#: kinds of factors that multiply: A [rank, in] and B [out, rank], or both transposed
PAIRS = {
    "lora_A": "lora_B",
    "lora_a": "lora_b",
    "lora_embedding_A": "lora_embedding_B",
    "loraA": "loraB",
    "lora_down": "lora_up",
    "lora.down": "lora.up",
    "lora_layer.down": "lora_layer.up",
    "lora_linear_layer.down": "lora_linear_layer.up",
    "lora.A": "lora.B",
    "lora.a": "lora.b",
    "lora_matrix_A": "lora_matrix_B",
    "lora_right": "lora_left",
    "lora_right_weight": "lora_left_weight",
}
#: tensors of PEFT's adapters that are no factors, and of which the mean is not that of what they do to weights either:
#: what they say. Those of IA3, FourierFT, C3A, Bone, SHiRA and prompts are not here: what they add or multiply is
#: linear in them, or is a part of the network as any other.
_SAYING = {
    "oft_r": "rotations",
    "oft_R": "rotations",
    "boft_R": "rotations",
    "road_theta": "rotations",
    "road_alpha": "rotations",
    "psoft_R": "rotations",
    "hra_u": "reflections",
    "vblora_logits_A": "coefficients of mixtures",
    "vblora_logits_B": "coefficients of mixtures",
    "vblora_logits_A_topk_weights": "coefficients of mixtures",
    "vblora_logits_B_topk_weights": "coefficients of mixtures",
}
_SAYS = re.compile(rf"(?:^|\.)({'|'.join(sorted(_SAYING, key=len, reverse=True))})(?=\.|$)")
#: those of which a parameter of that name is A [in, r] or B [r, out]
_OF_INPUTS = ("lora.A", "lora.B", "lora.a", "lora.b", "lora_right", "lora_left")
# behind a name with "_" too, as in to_q_lora.down, and one of several, as lora_A0
_FACTOR = re.compile(
    rf"(?:^|[._])({'|'.join(re.escape(name) for name in sorted(_RANK_IS, key=len, reverse=True))})(?=[0-9]*(?:\.|$))"
)
_NO_MEAN = "the mean of A and the mean of B are not the mean of B·A unless one of them is the same in all models"
#: what is to be known of factors, by what a question does: it averages them or goes between them, it averages them and
#: compares products, or it looks at single numbers
SUBJECTS = {
    "factors": (
        f"{_NO_MEAN}, and distances, angles and lines between factors are not those between the products; fedscope "
        "adapters says how far off the mean is, and fedscope updates compares products"
    ),
    "means": (
        f"{_NO_MEAN}; losses here are those of factors' means, distances and angles those between products, and "
        "fedscope adapters says how far off the mean is"
    ),
    "numbers": (
        "this answer is of single numbers of A and B, which are others in another pair with the same product B·A; "
        "fedscope updates and fedscope disperse --embed compare products"
    ),
}
#: the same where there are other tensors than A and B, whose product is not that of two factors
_OF_OTHERS = {
    "factors": (
        f"{_NO_MEAN}, and distances, angles and lines between factors are not those between the products; merge the "
        "adapters into their base to average or compare those"
    ),
    "means": (
        f"{_NO_MEAN}; losses here are those of factors' means, and distances and angles those between factors; merge "
        "the adapters into their base to average or compare products"
    ),
    "numbers": (
        "this answer is of single numbers of factors, which are others in other factors with the same product; merge "
        "the adapters into their base to compare products"
    ),
}
_NOT_LINEAR = "what the mean of such tensors does is not the mean of what they do"
_OF_SAYING = {
    "factors": (
        f"{_NOT_LINEAR}, and distances, angles and lines between tensors are not those between the weights that they "
        "make; merge the adapters into their base to average or compare those"
    ),
    "means": (
        f"{_NOT_LINEAR}; losses here are those of tensors' means, and distances and angles those between tensors; "
        "merge the adapters into their base to average or compare weights"
    ),
    "numbers": (
        "this answer is of these tensors' single numbers, and not of the weights that they make; merge the adapters "
        "into their base to compare those"
    ),
}
#: behind the name of what kohya's adapters adapt
ALPHA = ".alpha"


def factors_in(names: Iterable[str]) -> list[str]:
    """Return the kinds of factors among the names of tensors, each once; none where the model is no adapter.

    >>> factors_in(["q.lora_A.weight", "q.lora_B.weight", "k.lora_A.weight", "k.weight"])
    ['lora_A', 'lora_B']
    >>> factors_in(["attn1.processor.to_q_lora.down.weight", "encoder.down.weight", "explorer_lora.weight"])
    ['lora.down']
    """
    return sorted({match[1] for name in names if (match := _FACTOR.search(name))})


def split_factor(name: str) -> tuple[str, str, str] | None:
    """Split the name of a factor: what stands before its kind, the kind, and what stands behind; None of another.

    >>> split_factor("layers.0.q.lora_A.default.weight"), split_factor("head.weight")
    (('layers.0.q', 'lora_A', '.default.weight'), None)
    """
    match = _FACTOR.search(name)
    return None if match is None else (name[: match.start()], match[1], name[match.end() :])


def about_adapters(names: Iterable[str], subject: str = "factors") -> str:
    """Warn of averaging or comparing adapters; "" for other models, and for adapters that are linear in their tensors.

    Args:
        subject: what a question does with them, one of SUBJECTS.

    >>> about_adapters(["q.lora_A.weight"], "numbers").partition(": ")[2].partition(";")[0]
    'this answer is of single numbers of A and B, which are others in another pair with the same product B·A'
    >>> about_adapters(["q.oft_R.weight"]).partition(":")[0], about_adapters(["q.ia3_l"])
    ('the models are adapters, whose tensors say rotations of weights (oft_R)', '')
    """
    names = list(names)
    kinds = factors_in(names)
    if not kinds:
        return _about_saying(names, subject)
    said = SUBJECTS if set(kinds) <= {*PAIRS, *PAIRS.values()} else _OF_OTHERS
    return f"the models are adapters, whose tensors are factors of a product ({list_few(kinds, 4)}): {said[subject]}"


def _about_saying(names: list[str], subject: str) -> str:
    """Warn of adapters whose tensors are no factors, and say what they do in a way that is not linear."""
    kinds = sorted({match[1] for name in names if (match := _SAYS.search(name))})
    if not kinds:
        return ""
    what = " and ".join(dict.fromkeys(_SAYING[kind] for kind in kinds))
    return f"the models are adapters, whose tensors say {what} of weights ({list_few(kinds, 4)}): {_OF_SAYING[subject]}"


def rank_of(name: str, shape: tuple[int, ...]) -> int | None:
    """Return the rank of the product that a factor is of; None of another tensor.

    >>> rank_of("q.lora_A.weight", (4, 64)), rank_of("q.lora_B.weight", (16, 4)), rank_of("q.weight", (16, 4))
    (4, 4, None)
    """
    match = _FACTOR.search(name)
    dimension = None if match is None else _RANK_IS[match[1]]
    if match is not None and dimension is not None and match[1] in _OF_INPUTS and name.endswith(".weight"):
        dimension = 1 - dimension  # a layer of torch
    return None if dimension is None or dimension >= len(shape) else shape[dimension]


def other_ranks(arrays: Mapping[str, Any], layout: Layout) -> str:
    """Return a clause for adapters whose shapes differ in their rank; "" for others."""
    for entry in layout.entries:
        given = arrays.get(entry.name)
        if given is None or tuple(given.shape) == entry.shape:
            continue
        one, other = rank_of(entry.name, tuple(given.shape)), rank_of(entry.name, entry.shape)
        if one is not None and one != other:
            return (
                f"; these are adapters of rank {one} and of rank {other}: merge them into their base, or leave one out"
            )
    return ""


def alphas_in(shapes: Mapping[str, tuple[int, ...]]) -> frozenset[str]:
    """Return the names of kohya's ``.alpha``: single numbers beside factors, which scale their product. They are
    settings, and no weights.

    >>> alphas_in({"q.lora_down.weight": (4, 8), "q.alpha": (), "prelu.alpha": (1,)})
    frozenset({'q.alpha'})
    """
    names = [name for name, shape in shapes.items() if name.endswith(ALPHA) and prod(shape) == 1]
    modules = {name[: match.start()] for name in shapes if (match := _FACTOR.search(name))} if names else set()
    return frozenset(name for name in names if name.removesuffix(ALPHA) in modules)


def alphas_apart(layout: Layout) -> Layout:
    """Return a layout in which what scales kohya's adapters is no parameter, see :func:`alphas_in`."""
    alphas = alphas_in({entry.name: entry.shape for entry in layout.entries})
    if not alphas:
        return layout
    return Layout(tuple(replace(entry, kind="buffer") if entry.name in alphas else entry for entry in layout.entries))
