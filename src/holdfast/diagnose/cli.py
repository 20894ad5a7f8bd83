"""`holdfast diagnose`: which step of the deployment lost the metric."""

import sys
from pathlib import Path

from holdfast.config.output import check_outputs, say, write_json
from holdfast.config.parser import command_line
from holdfast.diagnose.options import DiagnoseOptions
from holdfast.noise.cli import load_own, note_aliases


def diagnose(options: DiagnoseOptions) -> int:
    """Find the step of the deployment that loses the metric, by running it beside the training system.

    Reports the first stage that differs; with a dataset also the accuracy drop of each difference alone, what
    comes back if it alone is fixed, and the images it broke. A dump of the target is compared as well.
    """
    from holdfast.diagnose.page import to_texts, write
    from holdfast.diagnose.run import diagnose as run
    from holdfast.engine.progress import progress

    check_outputs({"--json": options.json, "--out": options.out}, {})
    load_own(options.use)
    note_aliases([word.strip() for text in (options.train, options.deploy) for word in text.split(",")])
    found = run(options, progress)
    say("\n\n".join(to_texts(found)))
    if options.json:
        write_json(options.json, found.to_dict())
    if options.out:
        subject = (Path(options.model).stem, Path(options.data).name)
        page = write(found, subject, command_line(options), options.out)
        say(f"page: {page.resolve()}", sys.stderr)
    return 0
