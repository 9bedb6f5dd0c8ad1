"""Where the set-up is out of sight, an evaluation ran in half precision as the training did."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files
from tests.rules.test_from_users import use

SAME = """
    import torch
    from apex import amp


    def train(model, optimizer, criterion, loader):
        for x, y in loader:
            loss = criterion(model(x).float(), y)
            optimizer.zero_grad()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
            with torch.no_grad():
                for vx, _ in loader:
                    seen = model(vx)
        return str(seen.dtype)
    """
CALLED = """
    import torch
    from apex import amp


    def train_one(model, optimizer, criterion, x, y, weight=1.0):
        loss = criterion(model(x).float(), y) * weight
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()


    def validate(model, x):
        with torch.no_grad():
            return str(model(x).dtype)


    def train(model, optimizer, criterion, loader):
        for x, y in loader:
            train_one(model, optimizer, criterion, x, y, 0.5)
        return validate(model, x)
    """
SHARED = (
    CALLED
    + """

    def look(model, loader):
        return [validate(model, x) for x, _ in loader]
    """
)
KEPT = """
    import torch
    from apex import amp


    class Engine:
        def __init__(self, net, optimizer, criterion):
            self.net = net
            self.optimizer = optimizer
            self.criterion = criterion

        def fit(self, loader):
            for x, y in loader:
                loss = self.criterion(self.net(x).float(), y)
                self.optimizer.zero_grad()
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
                self.optimizer.step()
            return self.predict(x)

        @torch.no_grad()
        def predict(self, x):
            return str(self.net(x).dtype)
    """
FUNCTION = "from engine import *\nseen = train(model, optimizer, criterion, loader{})"
OBJECT = "from engine import *\nseen = Engine(model, optimizer, criterion{}).fit(loader)"


@pytest.mark.parametrize(
    ("source", "called"),
    [(SAME, FUNCTION), (CALLED, FUNCTION), (SHARED, FUNCTION), (KEPT, OBJECT)],
    ids=["in the function", "in one that it calls", "in one that others call, too", "in a method"],
)
def test_an_evaluation_has_a_region_with_the_same_switch(tmp_path: Path, source: str, called: str) -> None:
    text = check_files({"engine.py": source}, device="cpu")["engine.py"]
    told = "\nprint(json.dumps(seen))"
    for given, seen in ((", scaler=scaler", "torch.float16"), ("", "torch.float32")):
        assert use(tmp_path, {"engine.py": text}, called.format(given) + told) == seen


def test_who_calls_a_function_that_is_called_in_sight_may_go_on_as_before(tmp_path: Path) -> None:
    results = rewrite_files({"engine.py": CALLED}, device="cpu")
    text = results["engine.py"].after or ""
    told = [f.message.partition(" ")[0] for f in results["engine.py"].findings if f.code == "AMP228"]
    assert sorted(told) == ["train", "train_one", "validate"]
    program = (
        "from engine import *\n"
        "x, y = loader[0]\n"
        "before = [p.clone() for p in model.parameters()]\n"
        "train_one(model, optimizer, criterion, x, y, 0.5)\n"
        "moved = any((a != b).any().item() for a, b in zip(before, model.parameters()))\n"
        "print(json.dumps([moved, validate(model, x)]))"
    )
    assert use(tmp_path, {"engine.py": text}, program) == [True, "torch.float32"]


FILES = {
    "lib/__init__.py": "",
    "lib/engine.py": """
    import torch
    from apex import amp


    def train_epoch(model, optimizer, criterion, loader):
        model.train()
        for x, y in loader:
            loss = criterion(model(x).float(), y)
            optimizer.zero_grad()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
    """,
    "lib/evaluation.py": """
    import torch


    @torch.no_grad()
    def evaluate(network, loader):
        network.eval()
        return [str(network(x).dtype) for x, _ in loader]
    """,
    "lib/fitting.py": """
    from lib.engine import train_epoch
    from lib.evaluation import evaluate


    def fit(net, optim, criterion, loader):
        train_epoch(net, optim, criterion, loader)
        return evaluate(net, loader)[0]
    """,
}


def test_what_several_files_hand_on_is_followed_to_who_is_handed_it(tmp_path: Path) -> None:
    """The parameter of the caller out of sight was followed down alone, and by its name."""
    texts = check_files(FILES, device="cpu")
    called = "from lib.fitting import fit\nprint(json.dumps(fit(model, optimizer, criterion, loader{})))"
    for given, seen in ((", scaler=scaler", "torch.float16"), ("", "torch.float32")):
        assert use(tmp_path, texts, called.format(given)) == seen


def test_what_nothing_in_sight_hands_the_scaler_is_told_of() -> None:
    results = rewrite_files({name: text for name, text in FILES.items() if "fitting" not in name}, device="cpu")
    (told,) = (f for f in results["lib/engine.py"].findings if f.code == "AMP228")
    assert told.message.endswith("; what else runs the model belongs under torch.autocast where the scaler is enabled")
