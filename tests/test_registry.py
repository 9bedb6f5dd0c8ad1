from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from amp_migrate import docs, registry
from amp_migrate.audit.checks import CHECKS
from amp_migrate.findings import Code


def module(name: str, *codes: Code) -> ModuleType:
    made = ModuleType(name)
    made.CODES = codes  # type: ignore[attr-defined]
    return made


def code(name: str) -> Code:
    return Code(name, f"Title of {name}", "amp.x", "a", "n", "w", ("https://example.org",))


def test_every_code_is_complete_and_in_a_band() -> None:
    codes = registry.all_codes()
    assert list(codes) == sorted(codes)
    for name, entry in codes.items():
        assert name[3] in registry.BANDS
        assert entry.title
        assert not entry.title.endswith(".")
        for text in (entry.construct, entry.apex, entry.native, entry.why):
            assert text.strip(), name
        assert all(link.startswith("https://") for link in entry.links), name


def test_codes_of_the_rules_are_found() -> None:
    assert any(name.startswith("AMP2") for name in registry.all_codes())


def test_collecting_imports_no_libcst() -> None:
    program = "import sys; from amp_migrate.registry import all_codes; all_codes(); print('libcst' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_duplicates_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    two = module("two", Code("AMP101", "t", "c", "a", "n", "w"))
    monkeypatch.setattr(registry, "_modules", lambda: iter([module("one", code("AMP101")), two]))
    with pytest.raises(registry.RegistryError, match="AMP101 is stated in one and again in two"):
        registry.all_codes()


@pytest.mark.parametrize("name", ["AMP1", "AMP1001", "XYZ101"])
def test_codes_out_of_form_are_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(registry, "_modules", lambda: iter([module("one", code(name))]))
    with pytest.raises(registry.RegistryError):
        registry.all_codes()


def test_page_has_every_code_once_and_knows_when_it_is_stale(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "docs"
    assert docs.main(["--check", str(folder)]) == 1
    assert "stale" in capsys.readouterr().err
    assert docs.main([str(folder)]) == 0
    assert docs.main(["--check", str(folder)]) == 0
    text = (folder / "rules.md").read_text()
    for name in registry.all_codes():
        assert text.count(f"\n### {name}: ") == 1
    audit = (folder / "audit.md").read_text()
    for check in CHECKS:
        assert all(f"- [{code.code}](rules.md#" in audit for code in check.CODES)
    for page in ("rules.md", "audit.md"):
        kept = (folder / page).read_text()
        (folder / page).write_text(kept.replace("Generated", "Written"))
        assert docs.main(["--check", str(folder)]) == 1
        (folder / page).write_text(kept)


def test_links_inside_the_page_lead_somewhere() -> None:
    text = docs.page()
    headings = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^### (.*)$", text, re.M)}
    assert set(re.findall(r"\]\(#([^)]*)\)", text)) == headings
