"""The noise of language and speech models, for `holdfast.noise(task=…)`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.api.keywords import build_options
from holdfast.api.subjects import check_files, write_files
from holdfast.config.parser import command_line
from holdfast.core.errors import InputError
from holdfast.core.result import in_folder
from holdfast.noise.options import NoiseOptions

if TYPE_CHECKING:
    from holdfast.api.progress import Watch
    from holdfast.noise.language.result import LanguageSuite
    from holdfast.noise.speech.result import SpeechSuite

OTHER_TASKS = ("language", "speech")


def other_noise(
    model: object, data: object, options: Mapping[str, Any], show: Watch
) -> LanguageSuite | SpeechSuite:
    """The suite of language or speech models: `model` and `data` are paths or names, one or several."""
    from holdfast.noise.cli import unsupported_options

    task, given = options["task"], dict(options)
    if isinstance(given.get("card"), str | Path):
        given["card"] = [given["card"]]
    if isinstance(given.get("calibration"), Path):
        given["calibration"] = str(given["calibration"])
    words = (*_words("model", model, task), *_words("data", data, task))
    chosen = build_options(NoiseOptions, given, "noise", models_data=words)
    for name in unsupported_options(chosen):
        raise InputError(f"noise(): {name}: not supported with task={task!r}")
    check_files(chosen)
    return write_files(_language(chosen, show) if task == "language" else _speech(chosen, show), chosen)


def _words(name: str, value: object, task: str) -> list[str]:
    values = [value] if isinstance(value, str) or not isinstance(value, Sequence) else list(value)
    for one in values:
        if not isinstance(one, str | Path):
            raise InputError(
                f"noise(): {name}: expected paths or names for task={task!r}, got {type(one).__name__}"
            )
    return [str(one) for one in values]


def _language(options: NoiseOptions, show: Watch) -> LanguageSuite:
    from holdfast.noise.cli import stamp
    from holdfast.noise.language.cli import plan_of
    from holdfast.noise.language.result import SUITES, suite_folder
    from holdfast.noise.language.run import measure, prepare

    began = time.perf_counter()
    suite = measure(prepare(plan_of(options), show), show)
    suite = replace(suite, **stamp(command_line(options), began))
    folder = suite_folder(suite, options.runs)
    SUITES.save(suite, folder)
    return in_folder(suite, folder)


def _speech(options: NoiseOptions, show: Watch) -> SpeechSuite:
    from holdfast.noise.speech.cli import plans_of, suite_of
    from holdfast.noise.speech.page import save_example
    from holdfast.noise.speech.result import SUITES, suite_folder

    suite, sounds = suite_of(plans_of(options), command_line(options), show)
    folder = suite_folder(suite, options.runs)
    SUITES.save(suite, folder)
    for sound in sounds:
        save_example(sound, folder)
    return in_folder(suite, folder)
