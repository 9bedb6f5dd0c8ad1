"""Libraries whose users called amp.initialize take the scaler from them, as an optional parameter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

FINDER = """
    import torch

    try:
        from apex import amp
        HAS_AMP = True
    except ImportError:
        HAS_AMP = False


    class RateFinder:
        \"\"\"Finds a learning rate.

        Arguments:
            model (torch.nn.Module): the model
            optimizer (torch.optim.Optimizer): its optimizer,
                wrapped or not
            criterion: the loss
        \"\"\"

        def __init__(self, model, optimizer, criterion, device=None):
            self.model = model
            self.optimizer = optimizer
            self.criterion = criterion
            self.device = device
            self.seen = []

        def search(self, loader):
            for x, y in loader:
                self.train_batch(x, y)
            return self.seen

        def train_batch(self, x, y):
            self.optimizer.zero_grad()
            out = self.model(x)
            self.seen.append(str(out.dtype))
            loss = self.criterion(out.float(), y)
            if HAS_AMP and hasattr(self.optimizer, "_amp_stash"):
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            self.optimizer.step()
    """
ENGINE = """
    import torch
    from apex import amp


    def train_epoch(model, optimizer, criterion, loader, half=False):
        \"\"\"Train for one epoch.

        :param model: the model
        :param torch.optim.Optimizer optimizer: its optimizer
        \"\"\"
        for x, y in loader:
            step(model, optimizer, criterion, x, y, half)


    def step(model, optimizer, criterion, x, y, half):
        loss = criterion(model(x).float(), y)
        optimizer.zero_grad()
        if half:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
        else:
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    """
USER = """
    import json
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = torch.nn.MSELoss()
    loader = [(torch.randn(4, 3), torch.randn(4, 1)) for _ in range(3)]
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    """


def use(tmp_path: Path, texts: dict[str, str], program: str) -> dict[str, object]:
    lines = "\n".join(line[4:] for line in USER.splitlines())
    found: dict[str, object] = run_files(tmp_path, {**texts, "use.py": f"{lines}\n{program}\n"}, "use.py")
    return found


def test_a_class_takes_it_where_its_objects_are_made(tmp_path: Path) -> None:
    files = {"lib/__init__.py": "", "lib/finder.py": FINDER}
    text = check_files(files, device="cpu")["lib/finder.py"]
    assert "def __init__(self, model, optimizer, criterion, device=None, scaler=None):" in text
    assert (
        "            wrapped or not\n        criterion: the loss\n        scaler (torch.amp.GradScaler, optional): "
        in text
    )
    assert "_amp_stash" not in text
    make = "from lib.finder import RateFinder\nfinder = RateFinder(model, optimizer, criterion{})\nseen = finder.search(loader)\n"
    told = "print(json.dumps({'seen': seen, **finder.scaler.state_dict()}))"
    with_one = use(tmp_path, {"lib/__init__.py": "", "lib/finder.py": text}, make.format(", scaler=scaler") + told)
    assert with_one["seen"] == ["torch.float16"] * 3
    assert with_one["_growth_tracker"] == 3
    without = use(tmp_path, {"lib/__init__.py": "", "lib/finder.py": text}, make.format("") + told)
    assert without == {"seen": ["torch.float32"] * 3}


@pytest.mark.parametrize(("given", "grown"), [("scaler=scaler", 3), ("half=True", 0), ("", 0)])
def test_a_function_takes_it_and_hands_it_on(tmp_path: Path, given: str, grown: int) -> None:
    texts = check_files({"lib/__init__.py": "", "lib/engine.py": ENGINE}, device="cpu")
    text = texts["lib/engine.py"]
    assert "def train_epoch(model, optimizer, criterion, loader, half=False, scaler=None):" in text
    assert "def step(model, optimizer, criterion, x, y, half, scaler=None):" in text
    assert "    :param scaler: torch.amp.GradScaler of a caller" in text
    assert '    if scaler is None:\n        scaler = torch.amp.GradScaler("cpu", enabled=half)\n' in text
    program = (
        "from lib.engine import train_epoch\n"
        "before = [p.clone() for p in model.parameters()]\n"
        f"train_epoch(model, optimizer, criterion, loader, {given})\n"
        "moved = any((a != b).any().item() for a, b in zip(before, model.parameters()))\n"
        "print(json.dumps({'moved': moved, 'grown': scaler.state_dict()['_growth_tracker']}))"
    )
    assert use(tmp_path, {**texts, "lib/__init__.py": ""}, program) == {"moved": True, "grown": grown}


def test_the_report_says_what_users_do_now() -> None:
    results = rewrite_files({"lib/__init__.py": "", "lib/finder.py": FINDER})
    (told,) = (f for r in results.values() for f in r.findings if f.code == "AMP228")
    assert told.review == "review"
    assert "RateFinder(..., scaler=scaler)" in told.message


def refused(files: dict[str, str]) -> None:
    results = rewrite_files(files)
    assert all(r.after is None for r in results.values()), {p: r.after for p, r in results.items()}
    assert any(f.code == "AMP116" and f.status == "manual" for r in results.values() for f in r.findings)


SCRIPT = ENGINE + "\n\n    if __name__ == '__main__':\n        train_epoch(*build())\n"
SUBCLASS = FINDER + (
    "\n\n    class Other(RateFinder):\n        def __init__(self, model, optimizer):\n"
    "            super().__init__(model, optimizer, None)\n"
)
REGISTERED = ENGINE.replace("    def train_epoch", "    @register\n    def train_epoch")


@pytest.mark.parametrize("source", [SCRIPT, SUBCLASS, REGISTERED], ids=["script", "subclass", "registered"])
def test_what_users_cannot_hand_it_to_stays(source: str) -> None:
    refused({"lib/__init__.py": "", "lib/engine.py": source})


def test_not_in_bfloat16() -> None:
    results = rewrite_files({"lib/__init__.py": "", "lib/engine.py": ENGINE}, dtype="bfloat16")
    assert all(r.after is None for r in results.values())


ACCUMULATING = """
    import torch
    from apex import amp


    class Finder:
        def __init__(self, model, optimizer, criterion, steps=2):
            self.model = model
            self.optimizer = optimizer
            self.criterion = criterion
            self.steps = steps
            self.seen = []

        def run(self, loader):
            self.model.train()
            self.optimizer.zero_grad()
            for i, (x, y) in enumerate(loader):
                out = self.model(x)
                self.seen.append(str(out.dtype))
                loss = self.criterion(out.float(), y) / self.steps
                if hasattr(self.optimizer, "_amp_stash"):
                    delay = (i + 1) % self.steps != 0

                    with amp.scale_loss(loss, self.optimizer, delay_unscale=delay) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
            self.optimizer.step()
            return self.check(loader)

        def check(self, loader):
            self.model.eval()
            with torch.no_grad():
                for x, _ in loader:
                    out = self.model(x)
                    self.seen.append(str(out.dtype))
            return self.seen
    """


def test_what_asks_if_it_was_initialized_is_one_way_now_and_evaluates_as_it_trains(tmp_path: Path) -> None:
    """What only says when to unscale goes with the choice."""
    text = check_files({"lib/__init__.py": "", "lib/finder.py": ACCUMULATING}, device="cpu")["lib/finder.py"]
    assert "_amp_stash" not in text
    assert "delay" not in text
    assert text.count("backward()") == 1
    make = "from lib.finder import Finder\nfinder = Finder(model, optimizer, criterion{})\nseen = finder.run(loader)\n"
    told = "print(json.dumps({'seen': seen, **finder.scaler.state_dict()}))"
    files = {"lib/__init__.py": "", "lib/finder.py": text}
    with_one = use(tmp_path, files, make.format(", scaler=scaler") + told)
    assert with_one["seen"] == ["torch.float16"] * 6
    assert with_one["_growth_tracker"] == 1
    assert use(tmp_path, files, make.format("") + told) == {"seen": ["torch.float32"] * 6}


PROGRAM = """
    import torch
    from apex import amp


    def main(batches):
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x, y in batches:
            optimizer.zero_grad()
            loss = (model(x) - y).pow(2).mean()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()


    if __name__ == "__main__":
        main([(torch.ones(2, 2), torch.ones(2, 1))])
    """


def test_what_no_program_here_uses_is_a_library_beside_them() -> None:
    texts = check_files({"tools/finder.py": FINDER, "train.py": PROGRAM})
    assert "def __init__(self, model, optimizer, criterion, device=None, scaler=None):" in texts["tools/finder.py"]
    assert "self.scaler.scale(loss).backward()" in texts["tools/finder.py"]
    assert 'scaler = torch.amp.GradScaler("cuda")' in texts["train.py"]


@pytest.mark.parametrize(
    "user",
    [
        "from tools.finder import RateFinder\n\nKINDS = {'rate': RateFinder}\n",
        "from tools.finder import RateFinder\n\n\nclass Longer(RateFinder):\n    pass\n\n\ndef make(*args):\n"
        "    return Longer(*args)\n",
    ],
)
def test_what_a_program_may_use_is_none(user: str) -> None:
    results = rewrite_files({"tools/finder.py": FINDER, "train.py": PROGRAM, "tools/user.py": user})
    assert [f for f in results["tools/finder.py"].findings if f.status == "manual"]
