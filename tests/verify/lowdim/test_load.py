"""The compiled kernels share LLVM with whatever else compiles in the same process."""

import subprocess
import sys

import pytest

LOADED = "from holdfast.verify.lowdim.load import kernel; call = kernel(); "
OTHER = """
import numba, numpy

@numba.njit
def total(n):
    return numpy.ones(n).sum()

print(total(3))
"""


def done(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_numba_still_works_after_the_kernels_were_loaded():
    found = done(LOADED + OTHER)  # memory that numba gives back goes through a symbol the kernels lack
    assert (found.returncode, found.stdout) == (0, "3.0\n"), found.stderr


@pytest.mark.parametrize("symbol", ["numba_do_raise", "NRT_Free"])
def test_what_the_kernels_never_call_ends_the_process(symbol):
    found = done(
        LOADED
        + f"import ctypes; at = call.engine.get_function_address({symbol!r}); print('there', flush=True); "
        + "ctypes.CFUNCTYPE(None)(at)(); print('went on')"
    )
    assert (found.returncode, found.stdout) == (-6, "there\n"), found.stderr


def test_the_kernels_add_nothing_to_the_symbols_all_share():
    found = done(
        "import llvmlite.binding as llvm; "
        + LOADED
        + "print(llvm.address_of_symbol('NRT_Free'), 'numba' in __import__('sys').modules)"
    )
    assert found.stdout == "None False\n", found.stderr
