"""``text:FILE@FOLDER``: a text of your own, in the tokens of a model's folder."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ....checkpoints import FedscopeError, expand_home, real_path
from ....checkpoints.io.untrusted import explain_read_errors, read_text, regular
from ....evaluation.standard_tasks import TASKS
from ....evaluation.tasks import Task
from ..custom import as_they_are
from ..dataset import Dataset

#: what is learnt of it where nothing else is said
TASK = "sequences"
#: tokens of a sample
LENGTH = 128
TOKENIZER = "tokenizer.json"
#: bytes that a text may have; more are seldom measured on, and are cut to pieces by their user
MOST = 2**28


def load(argument: str, task: Task = TASKS[TASK]) -> Dataset:
    """The text in UTF-8 as tokens of ``FOLDER/tokenizer.json``, without those that begin and end texts.

    x are pieces of 128 tokens that follow each other, y the tokens that come one later; what is left at the end of the
    text and fills no piece is left out, but for a text that is shorter than one. All are test samples.

    Raises:
        FedscopeError: no folder, no tokenizer in it, or the package tokenizers is missing; no text, or one of fewer
            than two tokens; a task that is not one on tokens.
    """
    name, _, folder = argument.rpartition("@")
    place = f"--data text:{argument}"
    if not name:
        raise FedscopeError(
            f"{place} names no tokenizer; write text:FILE@FOLDER, with the model's folder that has {TOKENIZER}, or "
            "give that folder as the model (--model hf:FOLDER)"
        )
    if not task.tokens or task.has_classes:
        raise FedscopeError(
            f"{place} has a next token at each position, and --task {task.name} is for others; leave it out"
        )
    path, tokenizer = expand_home(name), expand_home(folder) / TOKENIZER
    if not path.is_file():
        raise FedscopeError(f"{place}: there is no file {path}; give a text in UTF-8")
    # with its mark, so that its tokens stay those of runs that are there
    text = read_text(path, "a text", "give a part of it", MOST, mark=True)
    tokens = np.array(_encode(tokenizer, text, place), np.int64)
    if len(tokens) < 2:
        raise FedscopeError(f"{place}: {path} has fewer than two tokens, so there is no next one; give a longer text")
    length = min(LENGTH, len(tokens) - 1)
    count = (len(tokens) - 1) // length
    x, y = (tokens[start : start + count * length].reshape(count, length) for start in (0, 1))
    whole = f"text:{real_path(path)}@{real_path(tokenizer.parent)}"
    return as_they_are(whole, str(path), {"x_test": x, "y_test": y}, inputs=True, task=task)


def _encode(path: Path, text: str, place: str) -> list[int]:
    """Make tokens of a text."""
    if not path.is_file():
        raise FedscopeError(
            f"{place}: {path.parent} has no {TOKENIZER}; save the tokenizer there (save_pretrained), or give tokens as "
            "an .npz with x [N, L]"
        )
    try:
        tokenizers: Any = import_module("tokenizers")
    except ImportError as error:
        raise FedscopeError(
            f"{place} needs tokenizers, which is not installed; install it: pip install 'fedscope[language]'"
        ) from error
    with explain_read_errors(regular(path, "a tokenizer"), "a tokenizer"):
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


PROVIDES = load
