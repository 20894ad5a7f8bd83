"""The tree of commands."""

from __future__ import annotations

import typer

from holdfast._version import __version__
from holdfast.cli import data, evaluate, model, report

app = typer.Typer(
    name="holdfast",
    help="Does this detector still work where it is deployed? Bring an ONNX file and images.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Evaluate an ONNX model on your images, exactly and fast, with a page to look at."""


app.command("evaluate")(evaluate.evaluate)
app.command("report")(report.report)
app.command("demo")(report.demo)
app.command("doctor")(report.doctor)
app.add_typer(data.app, name="data")
app.add_typer(model.app, name="model")
