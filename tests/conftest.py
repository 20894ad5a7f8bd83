"""Fixtures every test may use."""

import io
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from PIL import Image

from holdfast.cli import run
from holdfast.core import registry

# Whether a test passes depends neither on luck nor on load: by default hypothesis tries the same examples in
# every run. `make test-full` tries random and more of them (--hypothesis-profile explore).
MORE = 3  # times as many examples
PATIENT = {"deadline": None, "database": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("repeat", derandomize=True, **PATIENT)
settings.register_profile("explore", max_examples=MORE * 100, print_blob=True, **PATIENT)
settings.load_profile("repeat")

# A background job (`make test &`, nohup) ignores these signals, and so would the processes that tests kill.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


def pytest_collection_modifyitems(config, items):
    """Raise the number of examples of tests that set their own, where the profile asks for more."""
    if config.getoption("--hypothesis-profile") != "explore":
        return
    tests = {getattr(item, "obj", None) for item in items}
    for test in tests:
        own = getattr(test, "_hypothesis_internal_use_settings", None)
        if own is not None and hasattr(test, "_hypothesis_internal_settings_applied"):
            test._hypothesis_internal_use_settings = settings(own, max_examples=MORE * own.max_examples)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real models and images, or a skip with the reason."""
    root = Path(__file__).resolve().parents[1]
    folder = Path(os.environ.get("HOLDFAST_DATA", root.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real models and images at {folder}; set HOLDFAST_DATA to their folder")
    return folder


@pytest.fixture(scope="session")
def photo():
    """A function from a name to the bytes of a noisy JPEG of 320×240 pixels, always the same."""
    pixels = np.random.default_rng(5).integers(0, 255, (240, 320, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, format="JPEG")
    return lambda name: out.getvalue()


@pytest.fixture(autouse=True)
def parts_of_a_test_are_forgotten():
    """What a test registers or loads is not known to the next; holdfast's own parts stay, once loaded."""
    parts, files = set(registry._PARTS), set(registry._FILES)
    yield
    for key, part in list(registry._PARTS.items()):
        if key not in parts and not part.function.__module__.startswith("holdfast."):
            del registry._PARTS[key]
    for name in set(registry._FILES) - files:
        del registry._FILES[name]


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


@pytest.fixture
def holdfast(tmp_path, monkeypatch, capfd):
    """A function that runs `holdfast …` in an empty folder and gives exit code and output."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments):
        code = run([str(a) for a in arguments])
        said = capfd.readouterr()
        return Done(code, said.out, said.err)

    return command


@pytest.fixture
def fails(holdfast):
    """A function that runs a command that must fail: one line, exit code, no traceback; gives the line."""

    def command(*arguments, code=2):
        done = holdfast(*arguments)
        lines = done.err.strip().splitlines()
        assert done.code == code, done
        assert "Traceback" not in done.err
        assert lines[-1].startswith("holdfast: ")
        assert "internal error" not in lines[-1]
        assert sum(line.startswith("holdfast: ") for line in lines) == 1
        return lines[-1].removeprefix("holdfast: ")

    return command
