"""The part of the demo that is not about pictures: the shipped language and speech models under noise."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal

from holdfast.config.output import say
from holdfast.config.parser import command_line
from holdfast.noise.options import NoiseOptions

if TYPE_CHECKING:
    from holdfast.audit.options import DemoOptions
    from holdfast.report.parts import Figure, Section
    from holdfast.report.tables import Table

LANGUAGE = ("road-lm", "road-piqa", "road-lambada", "road-hellaswag", "road-winogrande")
SPEECH = ("fast-speech", "taco", "clips")


def sections(options: DemoOptions) -> list[Section]:
    """A section with the tables of both, each on a few of what comes with the package."""
    from holdfast.report.parts import Section

    figures = (*_language(options), *_speech(options))
    lead = "The same question for models that read and models that speak."
    return [Section("beyond", "Beyond pictures", figures, lead)]


def _language(options: DemoOptions) -> list[Figure]:
    from holdfast.engine.progress import progress
    from holdfast.noise.language.cli import plan_of
    from holdfast.noise.language.plan import prepare
    from holdfast.noise.language.result import models_table
    from holdfast.noise.language.run import measure
    from holdfast.stages.families import is_installed

    if not is_installed("tokenizers"):
        sys.stderr.write("note     language models are left out: pip install 'holdfast[language]'\n")
        return []
    plan = plan_of(_noise(options, LANGUAGE, "language", options.questions))
    return [
        _figure("Language: likelihood of answers", models_table(measure(prepare(plan, progress), progress)))
    ]


def _speech(options: DemoOptions) -> list[Figure]:
    from holdfast.noise.speech.cli import plans_of, suite_of
    from holdfast.noise.speech.result import paper_table

    noise = _noise(options, SPEECH, "speech", options.clips)
    made, _ = suite_of(plans_of(noise), command_line(noise))
    return [_figure("Speech: the spectrogram that is heard", paper_table(made))]


def _noise(
    options: DemoOptions, words: tuple[str, ...], task: Literal["language", "speech"], images: int
) -> NoiseOptions:
    return NoiseOptions(models_data=words, task=task, images=images, runs=options.runs, jobs=options.jobs)


def _figure(title: str, table: Table) -> Figure:
    from holdfast.report.parts import Figure, scroll
    from holdfast.report.tables import Table as Shown
    from holdfast.report.tables import to_html, to_text

    say(to_text(table) + "\n")
    return Figure(
        title, scroll(to_html(Shown(table.columns, table.rows)), title), f"{table.caption}.", wide=True
    )
