"""A tiny contest to test with: bright squares, two detectors of them, small pictures."""

import contextlib
import io
import shutil
import zipfile

import numpy as np
import onnx
from PIL import Image

from helpers import models as making
from holdfast.contest.make import finish, make, open_setup
from holdfast.contest.options import InitOptions
from holdfast.core.types import Size

WIDE = making.DETECT_CARD.replace("[16, 16]", "[20, 20]")
IMAGES = 6
SMALL = Size(64, 64)


@contextlib.contextmanager
def quiet(what, total):
    """A phase whose progress nobody sees."""
    yield lambda done, found: None


def materials(folder, images=9):
    """Data and two detectors in a folder; of every image the square is recognised by both."""
    making.blob_coco(folder / "data", images)
    making.detector(folder, "narrow")
    wide = making.detector(folder, "wide", WIDE)
    other = onnx.load(str(wide))
    other.doc_string = "another file than narrow"
    onnx.save(other, str(wide))
    return folder


def setup(folder, source, size=SMALL, **options):
    """A setup on those materials."""
    models = {"model": str(source / "narrow.onnx"), "members": str(source / "wide.onnx")}
    given = {"data": str(source / "data"), "images": IMAGES, "pixels": 300, **models, **options}
    return open_setup(InitOptions(folder=folder, **given), size)


def made(folder, source, phase=quiet, **options):
    """The contest, made and finished."""
    contest = make(setup(folder, source, **options), phase, jobs=1)
    finish(folder)
    return contest


def pixels(folder, number):
    with Image.open(folder / "images" / f"{number}.png") as picture:
        return np.array(picture)


def darkened(folder, numbers=None):
    """The images by number, a 12×12 part of each square of the named ones painted black."""
    images = {}
    for number in range(1, IMAGES + 1):
        image = pixels(folder, number)
        if numbers is None or number in numbers:
            rows, columns = np.nonzero(image[:, :, 0] > 200)
            y, x = int(np.median(rows)), int(np.median(columns))
            image[y - 6 : y + 6, x - 6 : x + 6] = 0
        images[number] = image
    return images


def entry(path, team, images):
    """The zip of a team."""
    path.mkdir(parents=True, exist_ok=True)
    target = path / f"advimages_{team}.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for number, image in images.items():
            stream = io.BytesIO()
            Image.fromarray(image).save(stream, "PNG", compress_level=1)
            archive.writestr(zipfile.ZipInfo(f"advimages/{number}.png"), stream.getvalue())
    return target


def copied(folder, target):
    """A copy of a contest that a test may spoil."""
    return shutil.copytree(folder, target)
