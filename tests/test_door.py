"""The Python API: `import holdfast as hf`, its functions, and what they take and return."""

import inspect
import json
import multiprocessing
import subprocess
import sys
import types

import numpy as np
import pytest
from PIL import Image

import holdfast as hf
from helpers.opt import outside
from holdfast.core.errors import DataError, InputError, UnknownName
from holdfast.evaluate.options import EvaluateOptions


@pytest.fixture(scope="module")
def model():
    return hf.load("signs-yolo")


@pytest.fixture(scope="module")
def data():
    return hf.dataset("signs:0:6")
