"""The Jensen-Shannon divergence between versions, against its formula."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from holdfast.core.errors import InputError  # noqa: E402
from holdfast.train.augment.consistency import consistency  # noqa: E402


def test_it_is_the_formula():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3, 5, 4))
    p = np.exp(logits) / np.exp(logits).sum(2, keepdims=True)
    want = (p * np.log(p / p.mean(0))).sum(2).mean()
    found = consistency([torch.from_numpy(one) for one in logits])
    assert float(found) == pytest.approx(want, abs=1e-9)


def test_alike_is_nought_and_apart_is_the_logarithm_of_two():
    one = torch.tensor([[30.0, -30.0], [0.0, 0.0]])
    assert float(consistency([one, one, one])) == pytest.approx(0, abs=1e-6)
    assert float(consistency([one[:1], -one[:1]])) == pytest.approx(np.log(2), abs=1e-5)


def test_its_gradient_pulls_versions_together():
    one = torch.tensor([[2.0, 0.0]], requires_grad=True)
    consistency([one, torch.tensor([[0.0, 2.0]])]).backward()
    assert one.grad[0, 0] > 0 > one.grad[0, 1]
    assert torch.isfinite(one.grad).all()


def test_one_version_alone_is_refused():
    with pytest.raises(InputError, match="2 or more versions, got 1"):
        consistency([torch.zeros(1, 2)])
