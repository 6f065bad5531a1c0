"""What MkDocs asks while it builds the site. The pages stay as they are: they are read elsewhere, too."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from website.linked import FRONT, SOURCES, home_of, linked_files, rewritten, source_page  # noqa: E402
from website.parameters import every_parameter  # noqa: E402

ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):<code>~?([^<]*)</code>")
PARAMETERS = "<!-- every parameter -->"


def on_config(config: Any) -> Any:
    """Leave pages out of the menu that do not exist. One that exists and is in no menu is an error."""
    docs = Path(config.docs_dir)
    config.nav = [{title: present(entry, docs) for title, entry in part.items()} for part in config.nav]
    return config


def present(entry: Any, docs: Path) -> Any:
    """A part of the menu, without what is missing."""
    if isinstance(entry, str):
        return entry
    return [page for page in entry for path in page.values() if path in FRONT.values() or (docs / path).exists()]


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that do not stand in docs/, and a page for each file that some page links to."""
    for name, path in FRONT.items():
        files.append(File.generated(config, path, content=(ROOT / name).read_text("utf-8")))
    texts = {file.src_uri: file.content_string for file in files.documentation_pages()}
    for path in sorted({path for uri, text in texts.items() for path in linked_files(text, home_of(uri))}):
        page = File.generated(config, f"{SOURCES}/{path}.md", content=source_page(path))
        page.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(page)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links lead to where their targets stand in the site, and fill in what is made from the code."""
    uri = page.file.src_uri
    if not uri.startswith(f"{SOURCES}/"):
        markdown = rewritten(markdown, home_of(uri), uri)
    return markdown.replace(PARAMETERS, every_parameter()) if PARAMETERS in markdown else markdown


def on_page_content(html: str, **_: Any) -> str:
    """Docstrings name classes and functions in Sphinx's way."""
    return ROLE.sub(lambda role: f"<code>{role[1]}</code>", html)
