"""Flags of float32 products: set within, and afterwards the caller's own, by whichever of torch's two interfaces."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.programs

#: what a caller may have said before, each in a process of its own, because some cannot be taken back
BEFORE = {
    "nothing": "pass",
    "the old flags": "torch.backends.cuda.matmul.allow_tf32 = True; torch.backends.cudnn.allow_tf32 = False",
    "a precision": "torch.set_float32_matmul_precision('medium')",
    "the new flag of products": "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
    "the new flag of convolutions": "torch.backends.cudnn.conv.fp32_precision = 'ieee'",
    "the new flag of all": "torch.backends.fp32_precision = 'ieee'",
    "no determinism": "torch.backends.cudnn.benchmark = True",
}
PROGRAM = """
import warnings
warnings.simplefilter("ignore")
import torch
from fedscope.evaluation.float32_products import float32_products

cuda, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn

def flags():
    found = []
    for read in (lambda: cuda.allow_tf32, lambda: cudnn.allow_tf32, torch.get_float32_matmul_precision,
                 lambda: cuda.fp32_precision, lambda: cudnn.conv.fp32_precision, lambda: cudnn.rnn.fp32_precision,
                 lambda: cudnn.deterministic, lambda: cudnn.benchmark):
        try:
            found.append(read())
        except (RuntimeError, AttributeError) as error:  # torch's, of a mix of both interfaces
            found.append(type(error))
    return found

def precise():
    if hasattr(cuda, "fp32_precision"):
        return [cuda.fp32_precision, cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision]
    return ["tf32" if one.allow_tf32 else "ieee" for one in (cuda, cudnn, cudnn)]

%s
before = flags()
for tf32, word in ((False, "ieee"), (True, "tf32")):
    with float32_products(tf32):
        assert precise() == [word] * 3, precise()
        assert (cudnn.deterministic, cudnn.benchmark) == (True, False)
        with float32_products(tf32):
            assert precise() == [word] * 3
        assert precise() == [word] * 3, "who leaves first must not put the flags back"
    assert flags() == before, (flags(), before)
"""


@pytest.mark.same_elsewhere
@pytest.mark.parametrize("said", BEFORE)
def test_the_callers_flags_are_what_they_were(said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM % BEFORE[said]], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
