"""A pretend accelerator for torch: real device semantics, computed on the processor, where there is no GPU.

``install()`` registers torch's slot for outside backends under the name ``pretend``, with a small C++ extension that is
compiled once (g++ and ninja; twenty seconds). Its tensors are on ``pretend:0`` or ``pretend:1``; every operator checks
the devices of its arguments as CUDA does and is then computed by the processor's kernel on the same memory, so values
are the processor's while all that torch does about devices is the real thing: dispatch, autograd in the device's own
thread, vmap, autocast, generators, ``state_dict``, deepcopy, ``torch.accelerator``.

What it finds:

- tensors on different devices in one operator (0-dimensional ones of the processor are let through where CUDA does so,
  and so are the processor's indices);
- ``numpy()`` and ``numpy.asarray`` of a device tensor; a tensor made on the processor and forgotten there;
- a generator on another device than what it draws; streams of random numbers differ from the processor's, as CUDA's do;
- memory read before it is written: what ``torch.empty`` gives is full of NaN;
- ``to(..., non_blocking=True)`` towards the processor, read before ``torch.accelerator.synchronize()``: it holds NaN;
- device names compared with ``"cpu"`` or ``"cuda"``, and ``torch.cuda`` functions called without asking;
- autocast on the wrong kind of device; products of integer matrices, which CUDA has not;
- recurrent layers differentiated in evaluation mode, which cuDNN refuses;
- out of memory: ``limit(bytes)`` makes allocations beyond it fail with ``torch.OutOfMemoryError``;
- ``float64`` on a device that has none, as Apple's (``without_float64``);
- all of this in programs that a test starts, too: ``everywhere(folder)`` is an environment in which they have it;
- with ``watch()``: every place in a package where the device must be waited for or memory is copied, how often, the
  number of operators (about one kernel each), and operators whose sums CUDA makes in no fixed order.

What it cannot find: wrong numbers of real kernels (TF32, other orders of sums), speed, real races, what cuDNN, cuBLAS,
NCCL, CUDA graphs and ``torch.compile`` do, fragmentation, fused kernels that CUDA has and this lacks (attention takes
the mathematical form, recurrent layers a cell at a time), and layers that ask ``tensor.is_cuda``.
"""

from .everywhere import everywhere
from .native import NAME, install, limit, loaded, why_not
from .watch import Seen, watch

__all__ = ["NAME", "Seen", "everywhere", "install", "limit", "loaded", "watch", "why_not"]
