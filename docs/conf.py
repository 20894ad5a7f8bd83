"""Sphinx configuration. The pages of `reference/` are generated from the code before the sources are read."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import generate

import holdfast

generate.write(HERE / "reference")

project = "holdfast"
author = "The holdfast authors"
copyright = "the holdfast authors, Apache-2.0"  # noqa: A001 - the name that Sphinx reads
version = release = holdfast.__version__
language = "en"

extensions = ["myst_parser", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_intro", "generate"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types of other libraries in signatures have no pages here
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = False

html_theme = "furo"
html_title = f"holdfast {release}"
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "sidebar_hide_name": False,
    "light_css_variables": {"color-brand-primary": "#0b5cad", "color-brand-content": "#0b5cad"},
    "dark_css_variables": {"color-brand-primary": "#7cb8f2", "color-brand-content": "#7cb8f2"},
}
