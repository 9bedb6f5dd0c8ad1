"""A field by which a shared region is switched is given to the object at each set-up that leads there: before, it is off."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

FIRST = """
    import torch
    from apex import amp

    class Base:
        def __init__(self, model):
            self.model = model
            self.seen = []

        def train(self, batches, mixed=False, opt_level="O1"):
            optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            if mixed:
                self.model, optimizer = amp.initialize(self.model, optimizer, opt_level=opt_level)
            self.embed(batches)
            for x in batches:
                loss = self.model(x).sum()
                if mixed:
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                optimizer.step()

        def embed(self, batches):
            for x in batches:
                self.seen.append(str(self.model.layer(x).dtype))
    """
SECOND = """
    import torch
    from apex import amp

    from first import Base

    class Other(Base):
        def train(self, batches, mixed=False, opt_level="O1"):
            with torch.no_grad():
                self.embed(batches)
            for _ in range(2):
                optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
                if mixed:
                    self.model, optimizer = amp.initialize(self.model, optimizer, opt_level=opt_level)
                for x in batches:
                    loss = self.model(x).sum()
                    if mixed:
                        with amp.scale_loss(loss, optimizer) as scaled_loss:
                            scaled_loss.backward()
                    else:
                        loss.backward()
                    optimizer.step()
            self.embed(batches)
    """
RUN = """
    import json
    import sys

    import torch

    from first import Base
    from second import Other

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, x):
            return self.layer(x)

    trainer = {kind}(Net())
    trainer.train([torch.ones(2, 4)], mixed={mixed})
    print(json.dumps(trainer.seen))
    """
HALF, FLOAT = "torch.bfloat16", "torch.float32"


def files(kind: str = "Other", mixed: object = True) -> dict[str, str]:
    return {"first.py": FIRST, "second.py": SECOND, "run.py": RUN.format(kind=kind, mixed=mixed)}


@pytest.mark.parametrize(
    ("kind", "mixed", "seen"),
    [
        ("Base", True, [HALF]),
        ("Base", False, [FLOAT]),
        ("Other", True, [FLOAT, HALF]),
        ("Other", False, [FLOAT, FLOAT]),
    ],
)
def test_each_class_runs_in_half_what_it_ran_after_its_own_set_up(
    kind: str, mixed: bool, seen: list[str], tmp_path: Path
) -> None:
    texts = check_files(files(kind, mixed), device="cpu", dtype="bfloat16")
    assert run_files(tmp_path, texts, "run.py") == seen


def test_the_field_is_given_at_both_and_is_off_once() -> None:
    texts = check_files(files())
    assert texts["first.py"].count("self.use_amp = False") == 1
    assert texts["first.py"].count('self.use_amp = mixed and opt_level != "O0"') == 1
    assert texts["second.py"].count('self.use_amp = mixed and opt_level != "O0"') == 1


def test_nothing_is_left_to_look_up_and_nothing_said_twice() -> None:
    chosen = "(Other if len(sys.argv) > 1 else Base)"
    found = [f for r in rewrite_files(files(chosen, "len(sys.argv) > 2")).values() for f in r.findings]
    assert not [f for f in found if f.code in ("AMP517", "AMP531")]
    assert len([f for f in found if f.code == "AMP110" and "self.use_amp" in f.message]) == 1


def test_a_class_without_a_constructor_has_it_off_once() -> None:
    without = {n: t.replace("self.seen.append", "print") for n, t in files().items()}
    made = "        def __init__(self, model):\n            self.model = model\n            self.seen = []\n"
    without["first.py"] = without["first.py"].replace(made, "        model = None\n")
    without["run.py"] = without["run.py"].replace("(Net())", "()")
    assert check_files(without)["first.py"].count("use_amp = False") == 1


def test_where_one_set_up_is_passed_by_the_object_keeps_what_another_gave_it(tmp_path: Path) -> None:
    second = FIRST[FIRST.index("        def train") : FIRST.index("        def embed")].replace("def train", "def tune")
    both = FIRST.replace("        def embed", second.replace("mixed", "fast") + "        def embed")
    run = RUN.replace("    from second import Other\n", "").format(kind="Base", mixed=True)
    run = run.replace("mixed=True)", "mixed=True)\n    trainer.tune([torch.ones(2, 4)], fast=False)")
    texts = check_files({"first.py": both, "run.py": run}, device="cpu", dtype="bfloat16")
    assert run_files(tmp_path, texts, "run.py") == [HALF, HALF]


def test_a_test_that_no_switch_can_be_handed_to_has_no_say_in_where_it_is_kept() -> None:
    test = """
        import torch
        from first import Base

        def test_training():
            trainer = Base(torch.nn.Sequential(torch.nn.Linear(4, 2)))
            trainer.train([torch.ones(2, 4)])
            out = trainer.model(torch.ones(2, 4))
            assert out.shape == (2, 2)
        """
    texts = check_files({"a/test_first.py": test, **files()})
    assert "enabled=self.use_amp" in texts["first.py"]
    assert 'self.use_amp = mixed and opt_level != "O0"' in texts["second.py"]
