"""A team of threads inside compiled code: the very OpenMP threads that torch runs on.

Numba's own threading layers would add a second pool, and the one that needs no library of the system aborts when two
Python threads meet in it. The runtime that torch is linked with (GNU's, or LLVM's with GNU's interface) gives every
Python thread a team of its own, which sleeps and spins as `backend.inference.threads` says. Without one, a team has one
member.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_ALONE = {
    "GOMP_parallel": ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)(
        lambda work, arguments, members, flags: _WORK(work)(arguments)
    ),
    "GOMP_barrier": ctypes.CFUNCTYPE(None)(lambda: None),
    "omp_get_thread_num": ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0),
    "omp_get_num_threads": ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1),
}


def _runtime() -> dict[str, Any]:
    """The OpenMP functions that torch's own library is linked with."""
    try:
        torch_cpu = ctypes.CDLL(str(next((Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*"))))
        return {name: getattr(torch_cpu, name) for name in _ALONE}
    except (StopIteration, OSError, AttributeError):
        return _ALONE


for _name, _function in _runtime().items():
    binding.add_symbol(_name, ctypes.cast(_function, ctypes.c_void_p).value)

barrier = types.ExternalFunction("GOMP_barrier", types.void())
member_number = types.ExternalFunction("omp_get_thread_num", types.int32())
team_size = types.ExternalFunction("omp_get_num_threads", types.int32())


@intrinsic
def in_team(typing, members, work, arguments):
    """Run the compiled function `work(*arguments)` on `members` threads at once; it must not raise."""
    kinds = tuple(arguments.types)
    work.dispatcher.compile(kinds)

    def generate(context, builder, signature, values):
        compiled = work.dispatcher.overloads[kinds]
        context.active_code_library.add_linking_library(compiled.library)
        pointer, number = cgutils.voidptr_t, ir.IntType(32)
        shared = cgutils.alloca_once_value(builder, values[2])

        name = builder.module.get_unique_name("member")
        member = ir.Function(builder.module, ir.FunctionType(ir.VoidType(), [pointer]), name)
        member.linkage = "internal"
        inside = ir.IRBuilder(member.append_basic_block())
        unpacked = cgutils.unpack_tuple(inside, inside.load(inside.bitcast(member.args[0], shared.type)))
        context.call_internal_no_propagate(inside, compiled.fndesc, compiled.signature, unpacked)
        inside.ret_void()

        start = ir.FunctionType(ir.VoidType(), [member.type, pointer, number, number])
        builder.call(
            cgutils.get_or_insert_function(builder.module, start, "GOMP_parallel"),
            [member, builder.bitcast(shared, pointer), builder.trunc(values[0], number), ir.Constant(number, 0)],
        )
        return context.get_dummy_value()

    return types.void(types.int64, work, arguments), generate
