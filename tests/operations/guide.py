"""The operations guide, for tests that walk through its procedures."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "docs" / "deploy"


def section(title: str) -> str:
    """Returns the text below a heading. Fails if there is none: a renamed procedure takes its test along."""
    text = (ROOT / "docs" / "operations.md").read_text()
    found = re.search(rf"^(#+) {re.escape(title)}\n(.*?)(?=^#+ |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found, f"docs/operations.md has no section {title!r}"
    return found[2]


def commands(title: str) -> list[str]:
    """Returns the commands of a section, line by line."""
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", section(title), re.DOTALL | re.MULTILINE)
    return [line.strip() for block in blocks for line in block.splitlines()]
