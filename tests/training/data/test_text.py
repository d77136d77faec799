"""``text:FILE@FOLDER``: tokens of a text, against a tokenizer of words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedscope.analysis.settings import EvaluationConfig
from fedscope.checkpoints import FedscopeError
from fedscope.training import load_data, task_of_data
from fedscope.training.inputs.recorded_data import data_named

pytestmark = pytest.mark.same_elsewhere


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers comes with the extra language")
    words = {str(number): number for number in range(400)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({**words, "?": 400}, unk_token="?"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    (tmp_path / "model").mkdir()
    tokenizer.save(str(tmp_path / "model" / "tokenizer.json"))
    return tmp_path / "model"


def write(folder: Path, tokens: Any) -> str:
    path = folder.parent / "a.txt"
    path.write_text(" ".join(map(str, tokens)), encoding="utf-8")
    return f"text:{path}@{folder}"


def test_pieces_follow_each_other_and_the_next_token_is_told(folder: Path) -> None:
    data = load_data(write(folder, range(300)))
    assert data.task.name == "sequences"
    assert data.x_test.shape == (2, 128)
    assert data.x_test.ravel().tolist() == list(range(256))
    assert data.y_test.ravel().tolist() == list(range(1, 257))
    short = load_data(write(folder, [5, 6, "other"]))
    assert (short.x_test.tolist(), short.y_test.tolist()) == ([[5, 6]], [[6, 400]])


def test_what_is_no_text_of_tokens_is_named(folder: Path) -> None:
    name = write(folder, [1])
    path = name.partition("@")[0]
    sentences = {
        name: "has fewer than two tokens, so there is no next one; give a longer text",
        path: r"names no tokenizer; write text:FILE@FOLDER, with the model's folder that has tokenizer.json, or give",
        f"{path}@{folder.parent}": "has no tokenizer.json; save the tokenizer there .*, or give tokens as an",
        f"text:nowhere.txt@{folder}": "there is no file nowhere.txt; give a text in UTF-8",
    }
    for given, sentence in sentences.items():
        with pytest.raises(FedscopeError, match=sentence):
            load_data(given)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(FedscopeError, match=r"tokenizer.json is truncated or not a tokenizer; copy or save it again"):
        load_data(name)


def test_the_folder_of_the_model_is_that_of_its_tokenizer() -> None:
    assert task_of_data("text:a.txt").name == "sequences"
    assert (
        data_named([], EvaluationConfig("test", data="text:a.txt", model="hf:models/tiny")) == "text:a.txt@models/tiny"
    )
    assert (
        data_named([], EvaluationConfig("test", data="text:a.txt@other", model="hf:models/tiny")) == "text:a.txt@other"
    )
    assert data_named([], EvaluationConfig("test", data="text:a.txt", model="mlp")) == "text:a.txt"
