"""Products in full precision, whatever a process has chosen for speed."""

import torch

from holdfast.verify.linear.pieces import full_precision


def exact() -> bool:
    """Whether 1 + 2^-20, which bfloat16 does not have, survives a product and a convolution."""
    fine = torch.full((32, 32), 1 + 2.0**-20)
    product = fine @ torch.eye(32)
    image = torch.nn.functional.conv2d(fine.reshape(1, 1, 32, 32), torch.ones(1, 1, 1, 1))
    return bool((product == fine).all()) and bool((image.reshape(32, 32) == fine).all())


def test_autocast_is_off_inside():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with full_precision():  # not tried outside: some machines claim bfloat16 and die of it
            assert exact()
        assert torch.is_autocast_enabled("cpu")


def test_reduced_products_are_off_inside():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with full_precision():
            assert exact()
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
