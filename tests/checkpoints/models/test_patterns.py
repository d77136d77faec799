"""Keys of ``alpha_pattern``, held against what PEFT does with them: ``re.match(rf"(.*\\.)?({key})$", name)``."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedscope.checkpoints.models.patterns import NotFollowedError, alpha_of, first_key, unfollowed

pytestmark = pytest.mark.same_elsewhere

NAMES = [
    "model.layers.0.self_attn.q_proj",
    "model.layers.10.self_attn.q_proj",
    "model.layers.1.mlp.up_proj",
    "layers.0.self_attn.k_proj",
    "q_proj",
    "lm_head",
    "a.b.a.b",
]
KEYS = [
    "^model.layers.0.self_attn.q_proj",
    "q_proj",
    "layers.0.self_attn.q_proj",
    r"^model\.layers\.(0|1)\..*",
    r".*layers\.[0-9]+\..*(q|k)_proj",
    r"layers\.\d\.self_attn\.[^v]_proj",
    r"(?:a\.b\.?){2}",
    r"(a\.b(\.)?)+?",
    r"\w+",
    r"[\w.]*head$",
    "^q_proj$",
    "",
]


def as_peft(keys: list[str], name: str) -> str | None:
    return next((key for key in keys if re.match(rf"(.*\.)?({key})$", name)), None)


@pytest.mark.parametrize("name", NAMES)
def test_the_keys_of_peft_s_documentation_and_others(name: str) -> None:
    for prefix in ("", "base_model.model."):
        assert [first_key([key], f"{prefix}{name}") for key in KEYS] == [as_peft([key], name) for key in KEYS]
        assert first_key(KEYS[4:], f"{prefix}{name}") == as_peft(KEYS[4:], name)


atoms = st.sampled_from(["a", "b", r"\.", ".", "[ab]", "[^a]", r"\w", r"\d", r"[\W1]", "^", "$"])
expressions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda ways: f"({'|'.join(ways)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,3}"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
    ),
    max_leaves=6,
)


@given(expressions, st.text("ab.1", max_size=9))
def test_an_expression_is_what_it_is_in_re(key: str, name: str) -> None:
    try:
        found = first_key([key], name)
    except NotFollowedError:  # repeated too deep
        assert key.count("(?:") > 2
        return
    assert found == as_peft([key], name), (key, name)


def test_an_expression_that_never_ends_in_re_ends() -> None:
    assert first_key(["(a*)*b", "(a|a)+c", ".*.*.*.*.*.*.*.*d"], "a" * 200) is None


@pytest.mark.parametrize("key", ["(?=q)q", r"(q)\1", "(?i)Q", "(", "((((q*)*)*)*)", "(?<!v)q", r"\bq", "q" * 501])
def test_what_is_not_followed_is_not_known(key: str) -> None:
    settings = {"lora_alpha": 8, "alpha_pattern": {"v_proj": 2, key: 16}}
    assert alpha_of("layers.0.q_proj", settings) is None
    assert unfollowed(settings) == key
    assert alpha_of("layers.0.v_proj", settings) == 2, "found before"
    assert unfollowed({"alpha_pattern": {"v_proj": 2}}) is None
