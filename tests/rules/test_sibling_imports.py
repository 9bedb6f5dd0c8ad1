"""Folders of scripts, each with helpers of the same file names: a script means the file beside it."""

from __future__ import annotations

from pathlib import Path

from tests.rules.helpers import check_files, run_files

# An attack on the model, with an optimizer while training and without one while evaluating.
UTILS = """
    import torch
    import torch.nn.functional as F
    from apex import amp

    def attack(model, x, y, steps, opt=None):
        delta = torch.zeros_like(x)
        delta.requires_grad = True
        for _ in range(steps):
            loss = F.cross_entropy(model(x + delta), y)
            if opt is not None:
                with amp.scale_loss(loss, opt) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            grad = delta.grad.detach()
            delta.data = delta.data + 0.1 * torch.sign(grad)
            delta.grad.zero_()
        return delta.detach()

    def evaluate(model, x, y):
        delta = attack(model, x, y, 2)
        with torch.no_grad():
            output = model(x + delta)
        return output.dtype
    """
TRAIN = """
    import json
    import torch
    import torch.nn.functional as F
    from apex import amp
    from utils import attack, evaluate

    def main():
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        model, opt = amp.initialize(model, opt, opt_level="O1")
        x, y = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
        losses = []
        for _ in range(4):
            delta = attack(model, x, y, 2, opt)
            loss = F.cross_entropy(model(x + delta), y)
            opt.zero_grad()
            with amp.scale_loss(loss, opt) as scaled_loss:
                scaled_loss.backward()
            opt.step()
            losses.append(loss.item())
        print(json.dumps([losses, str(evaluate(model, x, y))]))

    if __name__ == "__main__":
        main()
    """
OTHER = """
    import torch

    def attack(model, x):
        return x

    def evaluate(model, x):
        return model(x)
    """
PLAIN = """
    import torch
    from utils import evaluate

    if __name__ == "__main__":
        print(evaluate(torch.nn.Linear(2, 2), torch.zeros(1, 2)))
    """
FILES = {
    "cifar/utils.py": UTILS,
    "cifar/train.py": TRAIN,
    "mnist/utils.py": OTHER,
    "mnist/evaluate.py": PLAIN,
    "imagenet/lib/utils.py": OTHER,
}
# The same by hand, scaled exactly in powers of two: only rounding to float16 is there in both.
BY_HAND = """
    import json
    import torch
    import torch.nn.functional as F

    def region():
        return torch.autocast("cpu", dtype=torch.float16)

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    x, y = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    losses = []
    for _ in range(4):
        delta = torch.zeros_like(x).requires_grad_()
        for _ in range(2):
            with region():
                loss = F.cross_entropy(model(x + delta), y)
            (grad,) = torch.autograd.grad(scaler.scale(loss), delta)
            delta = (delta.detach() + 0.1 * torch.sign(grad)).requires_grad_()
        with region():
            loss = F.cross_entropy(model(x + delta.detach()), y)
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        losses.append(loss.item())
    print(json.dumps(losses))
    """


def test_a_script_means_the_helpers_beside_it() -> None:
    texts = check_files(FILES)
    assert "scaler.scale(loss).backward()" in texts["cifar/utils.py"]
    assert texts["mnist/utils.py"].count("amp") == texts["mnist/evaluate.py"].count("amp") == 0


def test_the_scaler_may_be_left_out_where_the_optimizer_is() -> None:
    texts = check_files(FILES)
    assert "opt=None, scaler=None)" in texts["cifar/utils.py"]
    assert "attack(model, x, y, 2, opt, scaler=scaler)" in texts["cifar/train.py"]
    assert "attack(model, x, y, 2)" in texts["cifar/utils.py"]
    assert "        else:\n            loss.backward()" in texts["cifar/utils.py"]


def test_it_trains_as_the_program_written_by_hand(tmp_path: Path) -> None:
    texts = check_files({**FILES, "hand.py": BY_HAND}, device="cpu")
    run = "import sys, runpy; sys.path.insert(0, 'cifar'); runpy.run_path('cifar/train.py', run_name='__main__')\n"
    losses, dtype = run_files(tmp_path, {**texts, "run.py": run}, "run.py")
    assert losses == list(run_files(tmp_path, texts, "hand.py"))
    assert dtype == "torch.float16"


def test_where_every_call_gives_an_optimizer_the_scaler_is_required() -> None:
    files = {**FILES, "cifar/utils.py": UTILS.replace("attack(model, x, y, 2)", "attack(model, x, y, 2, opt)")}
    files["cifar/utils.py"] = files["cifar/utils.py"].replace(
        "def evaluate(model, x, y)", "def evaluate(model, x, y, opt)"
    )
    files["cifar/train.py"] = TRAIN.replace("evaluate(model, x, y)", "evaluate(model, x, y, opt)")
    texts = check_files(files)
    assert "else:" not in texts["cifar/utils.py"]
    assert "scaler=None" not in texts["cifar/utils.py"]


SAVER = """
    import torch
    from apex import amp


    class Restorer:
        def __init__(self, model, optimizer):
            self.model, self.optimizer = model, optimizer

        def save(self, path):
            torch.save({"model": self.model.state_dict(), "amp": amp.state_dict()}, path)
    """
RUN = """
    import torch
    from apex import amp
    from src.utils.save import Restorer as Saver


    def main(model, loader, criterion):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        saver = Saver(model, optimizer)
        for x, y in loader:
            loss = criterion(model(x), y)
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        saver.save("last.pt")
    """


def test_in_each_of_several_trees_an_import_means_the_file_of_that_tree() -> None:
    files = {
        f"{tree}/src/{path}": text
        for tree in ("one", "two")
        for path, text in (("utils/save.py", SAVER), ("run.py", RUN))
    }
    texts = check_files(files)
    for tree in ("one", "two"):
        assert "saver = Saver(model, optimizer, scaler)" in texts[f"{tree}/src/run.py"]
        assert '"scaler": self.scaler.state_dict()' in texts[f"{tree}/src/utils/save.py"]
