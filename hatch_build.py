"""What hatchling does for this package: its links and its README.

A package index has no folders, so the README that it shows has absolute links. These and the package's own follow from
one key of pyproject.toml, ``repository`` below ``[tool.hatch.metadata.hooks.custom]``.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)(\[(?:[^\[\]]|\[[^\[\]]*\])*\])\((?!https?://|mailto:)([^()\s]+)\)")  # [text](target)


class Links(MetadataHookInterface):
    """Called by hatchling whenever it builds."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in what ``dynamic`` leaves open."""
        repository = self.config["repository"].rstrip("/")
        metadata["urls"] = {
            "Homepage": repository,
            "Documentation": f"{repository}/blob/main/docs",
            "Source": repository,
            "Changelog": f"{repository}/blob/main/CHANGELOG.md",
            "Issues": f"{repository}/issues",
        }
        text = (Path(self.root) / "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, repository)}


def absolute(text: str, repository: str) -> str:
    """Markdown whose links and pictures are found from anywhere."""

    def whole(link: re.Match[str]) -> str:
        picture, words, target = link.groups()
        target = f"README.md{target}" if target.startswith("#") else target
        return f"{picture}{words}({repository}/{'raw' if picture else 'blob'}/main/{target})"

    return LINK.sub(whole, text)
