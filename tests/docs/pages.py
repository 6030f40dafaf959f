"""The documentation as data: pages, their headings, links and fenced blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).parents[2]
PAGES = [
    TOP / "README.md",
    *sorted(path for path in (TOP / "docs").rglob("*.md") if path.name != "design.md"),
]
LANGUAGES = {"sh", "python", "toml", "json", "yaml", "text"}


@dataclass(frozen=True)
class Block:
    """A fenced block: its info string, its text, the line it starts at and the prose just before it."""

    page: Path
    line: int
    info: tuple[str, ...]
    text: str
    before: str

    @property
    def language(self) -> str:
        return self.info[0] if self.info else ""

    @property
    def gpu_only(self) -> bool:
        return "gpu" in self.info

    @property
    def makes_an_environment(self) -> bool:
        """README's two install lines: continuous integration runs those, in a fresh clone."""
        return self.text.startswith("python3 -m venv ")

    @property
    def runs(self) -> bool:
        return self.language in ("sh", "python") and not self.gpu_only and not self.makes_an_environment

    def __str__(self) -> str:
        return f"{self.page.relative_to(TOP)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    lines = page.read_text(encoding="utf-8").splitlines()
    opened: int | None = None
    for number, line in enumerate(lines):
        if not line.lstrip().startswith("```"):
            continue
        if opened is None:
            opened = number
            continue
        indent = len(line) - len(line.lstrip())
        info = tuple(lines[opened].strip()[3:].split())
        text = "\n".join(inside[indent:] for inside in lines[opened + 1 : number]) + "\n"
        yield Block(page, opened + 1, info, text, before=" ".join(lines[max(0, opened - 4) : opened]))
        opened = None
    assert opened is None, f"{page} ends inside a block that began at line {opened}"


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The fragments that its headings can be linked by."""
    headings = re.findall(r"^#+ +(.+)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", prose(page))
