"""A name that comes with its code, and the code's source."""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
import runpy
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
import tomli_w

from fedscope.training.settings.code_source import CodeSource, source_of
from fedscope.training.settings.own_code import OwnCode, name_of, short_name

pytestmark = pytest.mark.same_elsewhere


def test_a_name_is_a_text_that_keeps_its_code() -> None:
    code = OwnCode.of("fractions:Fraction", Fraction)
    for other in (copy.copy(code), copy.deepcopy(code), pickle.loads(pickle.dumps(code))):
        assert (other, other.thing, other.source) == ("fractions:Fraction", Fraction, code.source)
    assert json.dumps({"name": code}) == '{"name": "fractions:Fraction"}'
    assert tomli_w.dumps({"name": code}) == 'name = "fractions:Fraction"\n'


def test_the_source_is_the_files_and_of_a_program_the_things_own(tmp_path: Path) -> None:
    found, text = source_of(source_of), Path(source_of.__code__.co_filename).read_text()
    assert (found.text, found.file) == (text, "code_source.py")
    assert found.sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert found.distribution == "fedscope"

    own = "class Here:\n    x = 3\n"
    program = tmp_path / "program.py"
    imported = "from fedscope.training.settings.code_source import source_of"
    program.write_text(f"{imported}\n\n\n{own}\n\nF = source_of(Here())\n")
    assert runpy.run_path(str(program), run_name="__main__")["F"].text == own, "its other lines change without it"
    assert source_of(int) == CodeSource(), "what is built in has none"
    assert source_of(3).said() == {}


def test_what_is_wrapped_is_seen_through() -> None:
    assert name_of(partial(name_of, 3)) == name_of(name_of) == "fedscope.training.settings.own_code:name_of"
    assert source_of(partial(source_of, 3)) == source_of(source_of)
    assert name_of(lambda: 3).endswith("test_own_code:function")
    assert [short_name(name) for name in ("a.b:C(1, x=2)", "fma", "npz:a.npz")] == ["C", "fma", "a.npz"]
