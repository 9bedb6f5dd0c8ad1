"""What an import loads is an attribute of its package, for whoever reads it there."""

from __future__ import annotations

import pytest

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


def test_the_audit_tells_of_a_read_whose_import_went() -> None:
    before = PROGRAM.format(imports=PLAIN, read="apex.amp.handle.NAME")
    after = (
        before.replace("from apex import amp\nfrom apex.amp import handle\n", "")
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
    assert told(doubts(before, after), "AMP131")
    assert not told(doubts(before, after.replace("import apex\n", "import apex.amp.handle\n")), "AMP131")


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
