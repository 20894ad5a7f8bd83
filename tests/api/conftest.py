"""The embedded detector and a few scenes, in a folder of their own."""

import pytest

import holdfast as hf


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def model():
    return hf.load("signs-yolo")


@pytest.fixture(scope="session")
def data():
    return hf.dataset("signs:0:6")
