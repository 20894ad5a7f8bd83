"""One detector and one scene for all tests of attacks."""

import io

import numpy as np
import pytest
from PIL import Image as Pictures

from holdfast.attack.gradient.victim import open_victim
from holdfast.attack.judge import target_in
from holdfast.core.types import Boxes
from holdfast.data.open import open_dataset
from holdfast.graph.load import load_model


@pytest.fixture(scope="session")
def victim():
    import torch

    torch.set_num_threads(1)
    return open_victim(load_model("signs-yolo"))


@pytest.fixture(scope="session")
def scene(victim):
    """An image with true boxes that the detector finds, at the size of its input."""
    width, height = victim.model.card.input.size
    for entry in open_dataset("signs:3:8", task="detect").entries:
        sample = entry.load()
        picture = Pictures.open(io.BytesIO(sample.data)).convert("RGB")
        factor = np.array([width / picture.width, height / picture.height] * 2)
        image = np.asarray(picture.resize((width, height), Pictures.Resampling.BILINEAR))
        boxes = Boxes(sample.truth.xyxy * factor, sample.truth.classes)
        if len(boxes) < 3 and target_in(victim.judge, image, boxes, rule=victim.rule) is not None:
            return image, boxes
    raise AssertionError("the detector finds nothing in eight scenes")


@pytest.fixture(scope="session")
def target(victim, scene):
    return target_in(victim.judge, *scene, rule=victim.rule)
