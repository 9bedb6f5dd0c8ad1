"""A scaler that nothing can hand over lives at module level, as Apex's state did: disabled until it is set."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

# The network itself steps, as it is called: neither a parameter nor an attribute brings it the scaler.
NET = """
    import torch
    from lib.losses import backward


    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.line = torch.nn.Linear(3, 1)
            self.optimizer = torch.optim.SGD(self.line.parameters(), lr=0.1)

        def forward(self, x, y=None, mode="loss"):
            if mode == "tune":
                return self.tune(x, y)
            return (self.line(x) - y).pow(2).mean() / 1000

        def tune(self, x, y):
            for _ in range(2):
                backward(self(x, y), self.optimizer)
            return self.line(x)
    """
LOSSES = """
    import torch


    def backward(loss, optimizer):
        optimizer.zero_grad()
        from apex import amp
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    """
SETUP = """
    from apex import amp
    from lib.net import Net


    def build(args):
        model = Net()
        model, model.optimizer = amp.initialize(model, model.optimizer, opt_level=args.level)
        return model, model.optimizer
    """
TRAIN = """
    import argparse
    import json
    import torch
    from lib import losses
    from lib.losses import backward
    from lib.setup import build


    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--level", default="O1")
        torch.manual_seed(0)
        model, optimizer = build(parser.parse_args())
        x, y = torch.randn(4, 3), torch.randn(4, 1)
        first = model(x, y).item()
        for _ in range(3):
            loss = model(x, y)
            backward(loss, optimizer)
        model(x, y, "tune")
        print(json.dumps({"first": first, "last": model(x, y).item(), **losses.SCALER_STATE}))


    if __name__ == "__main__":
        main()
    """
FILES = {"lib/__init__.py": "", "lib/net.py": NET, "lib/losses.py": LOSSES, "lib/setup.py": SETUP, "train.py": TRAIN}


@pytest.mark.parametrize("level", ["O1", "O0"])
def test_the_file_that_scales_keeps_it_and_it_is_set_where_initialize_stood(tmp_path: Path, level: str) -> None:
    texts = check_files({**FILES, "train.py": TRAIN.replace('"O1"', f'"{level}"')}, device="cpu")
    assert '\nscaler = torch.amp.GradScaler("cpu", enabled=False)' in texts["lib/losses.py"]
    assert "scaler.scale(loss).backward()" in texts["lib/losses.py"]
    assert "from lib import losses\n" in texts["lib/setup.py"]
    assert 'losses.scaler = torch.amp.GradScaler("cpu", enabled=args.level != "O0")' in texts["lib/setup.py"]
    assert "scaler" not in texts["lib/net.py"]
    result = run_files(tmp_path, texts, "train.py")
    assert result["last"] < result["first"]
    assert result.get("_growth_tracker") == (5 if level == "O1" else None)


def test_it_says_so_and_why() -> None:
    results = rewrite_files(FILES)
    (told,) = (f for r in results.values() for f in r.findings if f.code == "AMP227")
    assert told.review == "look"
    assert "lib/setup.py:7" in told.message
    assert "module level" in told.message


@pytest.mark.parametrize(("scale", "grown"), [("dynamic", 5), ("128.0", None)])
def test_a_scale_known_at_run_time_lives_beside_it(tmp_path: Path, scale: str, grown: int | None) -> None:
    setup = SETUP.replace("opt_level=args.level", "opt_level=args.level, loss_scale=args.scale")
    option = f'parser.add_argument("--scale", default="{scale}")'
    train = TRAIN.replace("parser = argparse.ArgumentParser()", f"parser = argparse.ArgumentParser()\n        {option}")
    texts = check_files({**FILES, "lib/setup.py": setup, "train.py": train}, device="cpu")
    assert "\nloss_scale = None\n" in texts["lib/losses.py"]
    assert "scaler.update(loss_scale)" in texts["lib/losses.py"]
    result = run_files(tmp_path, texts, "train.py")
    assert result["scale"] == (65536.0 if grown else 128.0)
    assert grown is None or result["_growth_tracker"] == grown


ONE_FILE = """
    import torch
    from apex import amp
    from framework import run, register


    def on_batch(model, batch):
        loss = model(batch).sum()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()


    def main():
        \"\"\"Train.\"\"\"
        global optimizer
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        run(model, register(on_batch))
    """


def test_in_one_file_a_function_sets_it_as_a_global() -> None:
    text = check_files({"train.py": ONE_FILE})["train.py"]
    assert 'scaler = torch.amp.GradScaler("cuda", enabled=False)' in text
    assert '    """Train."""\n    global scaler\n' in text
    assert '    scaler = torch.amp.GradScaler("cuda")\n' in text
    assert "scaler.step(optimizer)" in text


def test_it_is_made_below_a_docstring_and_an_import_of_torch_that_is_new() -> None:
    source = ONE_FILE.replace("import torch\n", '"""Trains."""\n', 1).replace(
        "from framework import run, register\n", ""
    )
    source = source.replace("def main():", "def main(run, register):").replace("torch.nn.Linear", "Linear")
    source = source.replace("torch.optim.SGD", "SGD").replace("def on_batch", "@register\n    def on_batch")
    text = check_files({"train.py": source})["train.py"]
    assert text.startswith('"""Trains."""\nimport torch\n\nscaler = torch.amp.GradScaler("cuda", enabled=False)  #')


def test_what_only_evaluates_finds_a_scaler_that_is_off(tmp_path: Path) -> None:
    net = NET.replace(
        "return (self.line(x) - y)",
        "out = self.line(x)\n            self.seen = str(out.dtype)\n            return (out - y)",
    )
    evaluate = """
        import json
        import torch
        from lib.net import Net

        model = Net()
        model(torch.randn(2, 3), torch.randn(2, 1))
        print(json.dumps({"seen": model.seen}))
        """
    train = TRAIN.replace("print(json.dumps({", 'print(json.dumps({"seen": model.seen, ')
    files = {**FILES, "lib/net.py": net, "evaluate.py": evaluate, "train.py": train}
    texts = check_files(files, device="cpu", dtype="float16")
    assert run_files(tmp_path, texts, "evaluate.py")["seen"] == "torch.float32"
    assert run_files(tmp_path, texts, "train.py")["seen"] == "torch.float16"


def test_its_state_is_saved_and_loaded_where_another_file_does(tmp_path: Path) -> None:
    state = """
        import torch
        from apex import amp
        from lib.losses import backward


        def save(path, optimizer):
            torch.save({"optimizer": optimizer.state_dict(), "amp": amp.state_dict()}, path)


        def load(path, optimizer):
            saved = torch.load(path)
            optimizer.load_state_dict(saved["optimizer"])
            amp.load_state_dict(saved["amp"])
        """
    train = TRAIN.replace("from lib.setup", "from lib.state import load, save\n    from lib.setup")
    train = train.replace('model(x, y, "tune")\n', 'model(x, y, "tune")\n        save("state.pt", optimizer)\n')
    train = train.replace(
        "first = ",
        'if __import__("os").path.exists("state.pt"):\n            load("state.pt", optimizer)\n        first = ',
    )
    texts = check_files({**FILES, "lib/state.py": state, "train.py": train}, device="cpu")
    assert '"scaler": losses.scaler.state_dict()' in texts["lib/state.py"]
    assert run_files(tmp_path, texts, "train.py")["_growth_tracker"] == 5
    assert run_files(tmp_path, texts, "train.py")["_growth_tracker"] == 10


def test_a_package_that_imports_all_of_its_modules_makes_no_ring(tmp_path: Path) -> None:
    texts = check_files({**FILES, "lib/__init__.py": "from . import setup, net, losses\n"}, device="cpu")
    assert "from lib import losses\n" in texts["lib/setup.py"]
    files = {**texts, "lib/__init__.py": "from . import setup, net, losses\n"}
    assert run_files(tmp_path, files, "train.py")["_growth_tracker"] == 5


def test_where_its_module_cannot_be_named_the_one_that_initializes_keeps_it(tmp_path: Path) -> None:
    # The file that scales imports the one that initializes; an import back would make a ring.
    losses = "import lib.setup\n\n" + textwrap.dedent(LOSSES)
    net = NET.replace("from lib.losses import backward", "import lib.losses").replace(
        " backward(", " lib.losses.backward("
    )
    train = TRAIN.replace("from lib import losses", "import lib.setup").replace("losses.SCALER", "lib.setup.SCALER")
    texts = check_files({**FILES, "lib/losses.py": losses, "lib/net.py": net, "train.py": train}, device="cpu")
    assert "lib.setup.scaler.scale(loss).backward()" in texts["lib/losses.py"]
    assert "    global scaler\n" in texts["lib/setup.py"]
    assert run_files(tmp_path, texts, "train.py")["_growth_tracker"] == 5


def refused(files: dict[str, str]) -> None:
    results = rewrite_files(files)
    assert all(r.after is None for r in results.values()), {p: r.after for p, r in results.items() if r.after}
    told = [
        f
        for r in results.values()
        for f in r.findings
        if f.code in ("AMP113", "AMP213") and "waits for" not in f.message
    ]
    assert [f.status for f in told] == ["manual"]


SHADOWED = {"lib/__init__.py": "from lib.losses import backward as losses\n"}
RELOADED = {
    "lib/net.py": NET.replace(
        "import torch\n",
        "import importlib\n    import lib.losses\n    import torch\n    importlib.reload(lib.losses)\n",
        1,
    )
}
NOWHERE = {"lib/setup.py": SETUP.replace("from lib.net import Net", "from elsewhere import Net")}


@pytest.mark.parametrize("changed", [SHADOWED, RELOADED, NOWHERE], ids=["shadowed", "reloaded", "nowhere"])
def test_a_module_that_a_name_may_not_mean_keeps_none(changed: dict[str, str]) -> None:
    refused({**FILES, **changed})


def test_a_script_that_is_imported_again_keeps_none() -> None:
    script = ONE_FILE.replace("from framework", "import helper\n    from framework") + (
        '\n\n    if __name__ == "__main__":\n        main()\n'
    )
    refused(
        {
            "train.py": script,
            "helper.py": "import train\n\n\ndef again(model, batch):\n    train.on_batch(model, batch)\n",
        }
    )


def test_two_in_one_file_have_each_their_own() -> None:
    second = ONE_FILE[ONE_FILE.index("    def on_batch") :].replace("on_batch", "on_other").replace("main", "tune")
    text = check_files({"train.py": ONE_FILE + "\n\n" + second.replace("optimizer", "other")})["train.py"]
    for name, optimizer in (("scaler", "optimizer"), ("grad_scaler", "other")):
        assert f"\n{name} = torch.amp.GradScaler(" in text
        assert f"    global {name}\n" in text
        assert f"    {name}.step({optimizer})\n" in text


def test_what_else_is_in_the_way_is_what_is_told() -> None:
    source = ONE_FILE.replace("optimizer.step()\n", "go = optimizer.step\n        print(go)\n        go()\n", 1)
    result = rewrite_files({"train.py": source})["train.py"]
    assert result.after is None
    assert [f.code for f in result.findings if "waits for" not in f.message] == ["AMP216"]


def test_several_of_them_stand_together_and_one_import_names_them(tmp_path: Path) -> None:
    setup = """
        from apex import amp
        from lib.names import NAMES


        def prepare(net_D, net_G, opt_D, opt_G):
            assert NAMES
            [net_D, net_G], [opt_D, opt_G] = amp.initialize(
                [net_D, net_G], [opt_D, opt_G], opt_level="O1", num_losses=2
            )
            return net_D, net_G, opt_D, opt_G
        """
    meters = """
        import torch
        from apex import amp
        from lib.names import NAMES


        def scale_of(loss_id):
            return amp._amp_state.loss_scalers[loss_id].loss_scale()


        def scales():
            return {name: scale_of(i) for i, name in enumerate(NAMES)}
        """
    trainer = """
        from apex import amp


        class Trainer:
            def __init__(self, net_D, net_G, opt_D, opt_G):
                self.net_D, self.net_G = net_D, net_G
                self.opt_D, self.opt_G = opt_D, opt_G

            def dis_update(self, x):
                loss = (self.net_D(x) - x[:, :1]).pow(2).mean() / 1000
                self.opt_D.zero_grad()
                with amp.scale_loss(loss, self.opt_D, loss_id=0) as scaled_loss:
                    scaled_loss.backward()
                self.opt_D.step()

            def gen_update(self, x):
                loss = self.net_G(x).pow(2).mean() * BROKEN
                self.opt_G.zero_grad()
                with amp.scale_loss(loss, self.opt_G, loss_id=1) as scaled_loss:
                    scaled_loss.backward()
                self.opt_G.step()
        """
    train = """
        import json
        import torch
        from lib import meters
        from lib.setup import prepare
        from lib.trainer import Trainer


        def main(read="scales"):
            net_D, net_G = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
            opt_D = torch.optim.SGD(net_D.parameters(), lr=0.1)
            opt_G = torch.optim.SGD(net_G.parameters(), lr=0.1)
            net_D, net_G, opt_D, opt_G = prepare(net_D, net_G, opt_D, opt_G)
            trainer = Trainer(net_D, net_G, opt_D, opt_G)
            x = torch.randn(4, 3)
            trainer.dis_update(x)
            trainer.gen_update(x)
            print(json.dumps(getattr(meters, read)()))


        if __name__ == "__main__":
            main()
        """
    texts = check_files(
        {
            "lib/__init__.py": "",
            "lib/names.py": 'NAMES = ["D", "G"]\n',
            "lib/setup.py": setup,
            "lib/meters.py": meters,
            "lib/trainer.py": trainer.replace("BROKEN", 'float("inf")'),
            "train.py": train,
        },
        device="cpu",
    )
    assert [text.count("import trainer\n") for text in texts.values()].count(1) == 2
    assert "[trainer.scaler_D, trainer.scaler_G][loss_id].get_scale()" in texts["lib/meters.py"]
    assert run_files(tmp_path, texts, "train.py") == {"D": 65536.0, "G": 32768.0}
