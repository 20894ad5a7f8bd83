"""The Python API: `import holdfast as hf`, its functions, and what they take and return."""

import pytest

import holdfast as hf


@pytest.fixture(scope="module")
def model():
    return hf.load("signs-yolo")


@pytest.fixture(scope="module")
def data():
    return hf.dataset("signs:0:6")
