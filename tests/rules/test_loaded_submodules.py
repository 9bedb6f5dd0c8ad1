"""What an import loads is an attribute of its package, for whoever reads it there."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from amp_migrate.cli import main
from tests.audit.helpers import doubts, told
from tests.rules.helpers import rewrite, rewrite_files
from tests.rules.programs import found

PROGRAM = """
{imports}
import torch

def main(args, model, optimizer, loader):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    if args.verbose:
        print({read})
    for x in loader:
        optimizer.zero_grad()
        loss = model(x).mean()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
"""
GUARDED = """try:
    import apex
    from apex.amp import handle
    from apex import amp
except ImportError:
    raise ImportError("Please install apex")
"""
PLAIN = "import apex\nfrom apex import amp\nfrom apex.amp import handle\n"


@pytest.mark.parametrize("imports", [GUARDED, PLAIN])
def test_an_import_stays_while_what_it_loads_is_read_through_another(imports: str) -> None:
    after = rewrite(PROGRAM.format(imports=imports, read="apex.amp.handle.NAME")).after or ""
    assert "from apex.amp import handle" in after
    assert "import apex\n" in after
    assert "from apex import amp" not in after
    assert "amp.initialize" not in after


def test_it_goes_where_nothing_reads_that() -> None:
    after = rewrite(PROGRAM.format(imports=PLAIN, read="torch.__version__")).after or "apex"
    assert "apex" not in after


OTHER = """
from apex import amp
import torch

model, optimizer = amp.initialize(torch.nn.Linear(4, 4).cuda(), None, opt_level="O1")
found = amp.master_params(optimizer)
"""


def test_what_a_package_defines_itself_is_loaded_by_nobody(tmp_path: Path) -> None:
    """Another program of the project has its own import, and is not to be migrated."""
    names = PROGRAM.replace("amp.", "")
    train = names.format(imports="from apex.amp import initialize, scale_loss, master_params", read="args")
    for name, text in {"train.py": train, "show.py": OTHER}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / ".git").mkdir()
    done = CliRunner().invoke(main, ["rewrite", str(tmp_path / "train.py")])
    assert done.exit_code == 0, done.output
    assert "apex" not in (tmp_path / "train.py").read_text()
    assert (tmp_path / "show.py").read_text() == OTHER


def test_part_of_an_import_that_stays_for_another_file_is_told(tmp_path: Path) -> None:
    names = PROGRAM.replace("amp.", "")
    train = names.format(imports="from apex.amp import initialize, handle, scale_loss", read="args")
    show = "import apex\nfrom apex import amp\n\nprint(apex.amp.handle.NAME)\n"
    for name, text in {"train.py": train, "show.py": show}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / ".git").mkdir()
    for _ in range(2):
        done = CliRunner().invoke(main, ["rewrite", str(tmp_path / "train.py")])
        assert done.exit_code == 1
        assert "train.py:2:1 AMP102 still imports Apex, though nothing here reads it" in done.output
        assert "from apex.amp import handle\n" in (tmp_path / "train.py").read_text()


@pytest.mark.parametrize(("name", "lost"), [("handle", True), ("master_params", False)])
def test_the_audit_tells_of_a_read_whose_import_went(name: str, lost: bool) -> None:
    before = PROGRAM.format(imports=PLAIN.replace("handle", name), read=f"apex.amp.{name}.NAME")
    after = (
        before.replace(f"from apex import amp\nfrom apex.amp import {name}\n", "")
        .replace(
            'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")',
            'scaler = torch.amp.GradScaler("cuda")',
        )
        .replace(
            "with amp.scale_loss(loss, optimizer) as scaled_loss:\n            scaled_loss.backward()",
            "scaler.scale(loss).backward()",
        )
        .replace("optimizer.step()", "scaler.step(optimizer)\n        scaler.update()")
    )
    assert bool(told(doubts(before, after), "AMP131")) is lost
    assert not told(doubts(before, after.replace("import apex\n", f"import apex.amp.{name}\n")), "AMP131")


@pytest.mark.parametrize("imports", ["import apex", "try:\n    import apex\nexcept ImportError:\n    raise"])
def test_a_program_is_told_that_a_file_it_loads_asks_for_apex_by_its_whole_name(imports: str) -> None:
    files = {
        "train.py": """
            import torch
            from apex import amp
            from settings import show

            def main(model, optimizer, loader):
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
                show()
                for x in loader:
                    optimizer.zero_grad()
                    loss = model(x).mean()
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                    optimizer.step()

            if __name__ == "__main__":
                main(torch.nn.Linear(4, 4), None, [])
            """,
        "settings.py": imports + "\n\ndef show():\n    print(apex.amp.handle.NAME)\n",
    }
    results = rewrite_files(files)
    assert [f.review for f in found(results["train.py"], "AMP133")] == ["review"]


def test_the_audit_says_so_of_apex_alone() -> None:
    before = "import apex\nimport torch\nfrom torch.cuda.amp import autocast\n\nprint(apex.amp.NAME, torch.cuda.amp)\n"
    after = before.replace("from torch.cuda.amp import autocast\n", "")
    assert not told(doubts(before, after), "AMP131")
