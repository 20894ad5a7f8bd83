"""The page in a real browser: it shows, sorts, and the browser finds nothing to complain about."""

import re
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

from holdfast.evaluate.page import write

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium found: scripts/install-browser.sh installs it"
)


def browse(tmp_path, url, *options):
    quiet = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
        "--disable-background-networking", "--disable-component-update",
        f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--v=0", "--hide-scrollbars",
    ]  # fmt: skip
    done = subprocess.run(
        [BROWSER, *quiet, *options, url], capture_output=True, text=True, timeout=120, check=True
    )
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert complaints == []
    return done.stdout


def test_the_page_is_drawn_without_complaint(made, photo, tmp_path):
    out = write(made["detect"](["stop", "no-entry", "yield"]), tmp_path / "report.html", photo)
    shot = tmp_path / "shot.png"
    browse(tmp_path, out.as_uri(), f"--screenshot={shot}", "--window-size=1440,2400")
    pixels = np.asarray(Image.open(shot).convert("RGB"))
    assert pixels.shape[:2] == (2400, 1440)
    colours = pixels @ np.array([1 << 16, 1 << 8, 1])
    for band in np.array_split(colours, 6):  # something is drawn everywhere, not only at the top
        assert len(np.unique(band)) > 20


# A page that frames the report at the width of a phone, which a window cannot have, and presses its buttons.
PROBE = """<!doctype html><body><pre id="out"></pre>
<iframe id="page" src="report.html" width="390" height="800"></iframe>
<script>
document.getElementById("page").addEventListener("load", (event) => {
  const page = event.target.contentDocument, table = page.querySelector("#classes table");
  const column = () => [...table.tBodies[0].rows].map((row) => row.cells[1].dataset.value).join(" ");
  const head = table.tHead.rows[0].cells[1], lines = [];
  for (let press = 0; press < 4; press++) {
    lines.push(head.getAttribute("aria-sort") + ": " + column());
    head.querySelector("button").click();
  }
  lines.push("ready: " + table.classList.contains("ready"));
  lines.push("wider than the window by: " + (page.documentElement.scrollWidth - 390));
  document.getElementById("out").textContent = lines.join("\\n");
});
</script></body>"""


def test_a_heading_sorts_and_nothing_is_wider_than_a_phone(made, photo, tmp_path):
    evaluation = made["detect"]([f"class-{i}" for i in range(12)], images=30)
    evaluation.result["per_class"][4]["AP"] = None
    write(evaluation, tmp_path / "report.html", photo)
    (tmp_path / "probe.html").write_text(PROBE)
    dom = browse(
        tmp_path, (tmp_path / "probe.html").as_uri(), "--dump-dom", "--allow-file-access-from-files",
        "--virtual-time-budget=5000",
    )  # fmt: skip
    lines = re.search(r'<pre id="out">(.*?)</pre>', dom, re.DOTALL).group(1).splitlines()
    values = [row["AP"] for row in evaluation.result["per_class"]]
    known = sorted(v for v in values if v is not None)

    def told(order, numbers):
        return f"{order}: {' '.join(map(str, numbers))}"

    as_given = told("none", ["" if v is None else v for v in values])
    assert lines == [
        as_given,
        told("descending", known[::-1]) + " ",
        told("ascending", known) + " ",
        as_given,
        "ready: true",
        "wider than the window by: 0",
    ]
