"""`holdfast diagnose`: find the stage of a deployment that loses accuracy."""

import sys
from pathlib import Path

from holdfast.config.output import check_outputs, say, write_json
from holdfast.config.parser import command_line
from holdfast.diagnose.options import DiagnoseOptions
from holdfast.noise.cli import load_user_noise, note_aliases


def diagnose(options: DiagnoseOptions) -> int:
    """Find the stage of a deployment that loses accuracy, by comparing it with the training pipeline.

    Reports the first stage that differs. With a dataset also the points lost by each difference alone, the
    points recovered if only it is fixed, and the broken images. Dumps of the target are matched to options.
    """
    from holdfast.diagnose.page import to_texts, write
    from holdfast.diagnose.run import diagnose as run
    from holdfast.engine.executor import progress

    check_outputs({"--json": options.json, "--out": options.out}, {})
    load_user_noise(options.use)
    note_aliases([word.strip() for text in (options.train, options.deploy) for word in text.split(",")])
    found = run(options, progress)
    say("\n\n".join(to_texts(found)))
    if options.json:
        write_json(options.json, found.to_dict())
    if options.out:
        subject = (Path(options.model).stem, Path(options.data).name)
        page = write(found, subject, command_line(options), options.out)
        say(f"report   {page.resolve()}", sys.stderr)
    return 0
