"""A class whose base is out of sight, and was handed the model: what it calls of that base's may run it, and has a region."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_files, rewrite_files

FILES = {
    "scoring.py": """
        from toolbox import Extension

        class Score(Extension):
            def __init__(self, loader, target, criterion=None):
                super().__init__(loader, target)
                self.criterion = criterion

            def evaluate(self):
                total = 0
                for x, y in self.iterators["main"]:
                    scores = self.score_of(x)
                    total += self.criterion(scores, y).item()
                    self.tell(scores.detach())
                return total
        """,
    "train.py": """
        import torch
        from apex import amp
        from toolbox import Manager

        from scoring import Score

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 2)

            def forward(self, x):
                return self.layer(x)

        def fit(manager, model, optimizer, criterion, loader, mixed):
            for x, y in loader:
                with manager.step():
                    loss = criterion(model(x), y)
                    optimizer.zero_grad()
                    if mixed:
                        with amp.scale_loss(loss, optimizer) as scaled_loss:
                            scaled_loss.backward()
                    else:
                        loss.backward()
                    optimizer.step()

        def main(loader, test, mixed=True):
            model = Net().cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            if mixed:
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            criterion = torch.nn.CrossEntropyLoss()
            manager = Manager(model, optimizer)
            manager.extend(Score(test, model, criterion=criterion))
            fit(manager, model, optimizer, criterion, loader, mixed)
        """,
}
ALWAYS = {
    "train.py": FILES["train.py"]
    .replace("            if mixed:\n                model, opt", "            if True:\n                model, opt")
    .replace("if mixed:", "if True:")
}
REGION = 'with torch.autocast("cuda", dtype=torch.float16, enabled=True):\n                scores = self.score_of(x)\n'


def test_what_the_base_keeps_runs_in_a_region() -> None:
    assert REGION in check_files(FILES | ALWAYS)["scoring.py"]


def test_where_the_switch_is_out_of_reach_it_is_told() -> None:
    results = rewrite_files(FILES)
    assert results["scoring.py"].after is None
    (told,) = [f for f in results["scoring.py"].findings if f.code == "AMP531"]
    assert (told.line, told.review) == (11, "review")
    assert told.message.startswith("self.score_of in Score.evaluate is what toolbox.Extension keeps")


def test_a_model_that_takes_its_region_along_needs_no_other() -> None:
    own = "            model.forward = torch.autocast('cuda', dtype=torch.float16)(model.forward)\n"
    train = FILES["train.py"].replace("            criterion = torch", f"{own}            criterion = torch")
    assert not [f for f in rewrite_files(FILES | {"train.py": train})["scoring.py"].findings if f.code == "AMP531"]


@pytest.mark.parametrize(
    "change",
    [
        ("super().__init__(loader, target)", "super().__init__(loader)"),
        ("(Extension)", ""),
        ("scores = self.score_of(x)", "scores = self.score_of()"),
        ("self.criterion = criterion", "self.criterion, self.score_of = criterion, len"),
        ("def evaluate", "def score_of(self, x):\n                return x\n\n            def evaluate"),
        (
            "total += self.criterion(scores, y).item()\n                    self.tell(scores.detach())",
            "self.tell(scores)",
        ),
    ],
)
def test_what_is_no_run_of_the_model_has_none(change: tuple[str, str]) -> None:
    other = {"scoring.py": FILES["scoring.py"].replace(*change)}
    assert other != {"scoring.py": FILES["scoring.py"]}
    results = rewrite_files(FILES | ALWAYS | other)
    assert results["scoring.py"].after is None
    assert not [f for f in results["scoring.py"].findings if f.code == "AMP531"]


def test_a_class_without_a_constructor_hands_its_arguments_on() -> None:
    start = FILES["scoring.py"].index("    def __init__")
    rest = FILES["scoring.py"].index("    def evaluate")
    bare = FILES["scoring.py"][:start] + FILES["scoring.py"][rest:]
    assert REGION in check_files(FILES | ALWAYS | {"scoring.py": bare})["scoring.py"]
