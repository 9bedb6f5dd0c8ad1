"""The hand-written pages: codes exist, links lead somewhere, the example is what the tool does."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from amp_migrate.registry import all_codes
from tests.rules.helpers import check_rewrite

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = sorted(path.name for path in DOCS.glob("*.md"))


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    headings = re.findall(r"(?m)^#+ (.+)$", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", PAGES)
def test_links_between_pages_lead_somewhere(name: str) -> None:
    # In code, `phases["train"](loader)` is a call and no link.
    text = re.sub(r"```.*?```|`[^`]*`", "", (DOCS / name).read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"(?m)^\[[^\]]+\]: (\S+)$", text)
    for target in targets:
        if target.startswith(("https://", "http://")):
            continue
        path, _, anchor = target.partition("#")
        page = DOCS / path if path else DOCS / name
        assert page.exists(), target
        assert not anchor or anchor in anchors(page), target


@pytest.mark.parametrize("name", ["semantics.md", "architecture.md", "contributing.md"])
def test_every_code_is_a_documented_one(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    assert set(re.findall(r"AMP\d{3}", text)) <= set(all_codes())


@pytest.mark.parametrize("name", PAGES)
def test_a_page_reads_the_same_where_markdown_is_read_more_strictly(name: str) -> None:
    """Python-Markdown ends a list at a paragraph that is indented by less than four, and shows `\\|` in code as it is."""
    in_code, before = False, ""
    for number, line in enumerate((DOCS / name).read_text().splitlines(), 1):
        in_code ^= line.startswith("```")
        if not in_code:
            indent = len(line) - len(line.lstrip())
            assert before.strip() or indent not in (1, 2, 3) or not line.strip(), f"{name}:{number} leaves its list"
            assert not re.search(r"`[^`]*\\\|[^`]*`", line), f"{name}:{number} shows a backslash"
        before = line


def test_every_code_reference_is_a_link() -> None:
    text = (DOCS / "semantics.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\[(AMP\d{3})\](?!:)", text)) == set(re.findall(r"(?m)^\[(AMP\d{3})\]: ", text))


def test_the_example_is_what_the_tool_does() -> None:
    text = (DOCS / "semantics.md").read_text(encoding="utf-8")
    before, after = re.findall(r"```python\n# (?:before|after): \w+\n(.*?)```", text, re.DOTALL)
    head = textwrap.dedent("""
        import torch

        from project import build, criterion, loader

        model = build()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        """).lstrip()
    check_rewrite("from apex import amp\n" + head + before, head + after)


def test_the_example_of_the_readme_is_what_the_tool_does() -> None:
    shown = re.search(r"```diff\n(.*?)```", (DOCS.parent / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    lines = shown[1].splitlines()
    before, after = ("\n".join(line[1:] for line in lines if line[:1] != other) + "\n" for other in "+-")
    head = textwrap.dedent("""
        import argparse

        import torch
        from project import accumulation_steps, build, criterion, loader, max_norm, scheduler

        parser = argparse.ArgumentParser()
        parser.add_argument("--fp16", action="store_true")
        args = parser.parse_args()

        """).lstrip()
    head, arguments = head.split("\nparser", 1)
    imports, program = before.split("\n\n", 1)
    check_rewrite(f"{head}{imports}\n\nparser{arguments}{program}", f"{head}\nparser{arguments}{after}")


def test_the_architecture_names_every_part_of_the_package() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    parts = [path.parent.name for path in (DOCS.parent / "amp_migrate").glob("*/__init__.py")]
    assert not [part for part in parts if f"{part}/" not in text]


def test_the_walk_through_an_addition_names_what_is_there() -> None:
    text = (DOCS / "contributing.md").read_text(encoding="utf-8")
    root = DOCS.parent
    paths = re.findall(r"`((?:amp_migrate|tests)/[\w/.]+)`", text)
    assert len(paths) >= 6
    code = "".join((root / path).read_text(encoding="utf-8") for path in paths if (root / path).is_file())
    assert [path for path in paths if not (root / path).exists()] == []
    names = re.findall(r"`([a-z]+(?:_[a-z]+)+|[A-Z]\w+)`", text)
    assert len(names) >= 5
    assert [name for name in names if name not in code] == []
    targets = (root / "Makefile").read_text(encoding="utf-8")
    assert [name for name in re.findall(r"(?m)^make (\w+)", text) if f"\n{name}:" not in targets] == []
