"""Configuration of the documentation site; `make docs` builds it."""

import sys
from pathlib import Path

import maze_pl

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "maze_pl"
author = "The maze_pl developers"
copyright = author
version = release = maze_pl.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "navigation",
    "api_reference",
    "option_reference",
    "example_episodes",
]
root_doc = "index"
exclude_patterns = ["extensions"]
nitpicky = False
show_warning_types = True

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

# In docstrings, single backticks mark code, as they do in Markdown.
default_role = "code"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"maze_pl {release}"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
