"""Whether Apex is there, kept on the object (`self.has_apex`), and classes beside the one that scales."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite, rewrite_files, run_files

PROBE = """
        global apex
        try:
            import apex

            self.has_apex = True
        except ImportError:
            warnings.warn("no apex: training in float32")
            self.has_apex = False
"""
BODY = """
    def __call__(self, batch):
        self.model.train()
        self.optimizer.zero_grad()
        x, y = batch
        loss = self.loss_fn(self.model(x), y)
        {backward}
        self.optimizer.step()
        return loss.item()
"""
HEAD = """
from trainlib.base import Updater


class {name}(Updater):
    def __init__(self, model, optimizer, loss_fn):
        self.model = model
        self.optimizer = optimizer
        self.loss_fn = loss_fn
"""
SCALED = """if self.has_apex:
            with apex.amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()"""
LIBRARY = {
    "trainlib/__init__.py": "",
    "trainlib/updaters/__init__.py": "from trainlib.updaters.half import Half\nfrom trainlib.updaters.plain import Plain\n",
    "trainlib/base.py": "class Updater:\n    def __call__(self, batch):\n        raise NotImplementedError\n",
    "trainlib/updaters/half.py": f"import warnings\n{HEAD.format(name='Half')}{PROBE}{BODY.format(backward=SCALED)}",
    "trainlib/updaters/plain.py": HEAD.format(name="Plain") + BODY.format(backward="loss.backward()"),
}
USER = """
import json
import torch
from trainlib.updaters import Half, Plain

losses = []
for updater in (Half, Plain):
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    update = updater(model, optimizer, torch.nn.functional.mse_loss)
    losses.append([update((torch.ones(4, 2), torch.ones(4, 1))) for _ in range(3)])
print(json.dumps(losses))
"""


def test_users_who_hand_no_scaler_over_train_in_float32(tmp_path: Path) -> None:
    texts = check_files(LIBRARY)
    half = texts["trainlib/updaters/half.py"]
    assert 'torch.amp.GradScaler("cuda", enabled=False) if scaler is None else scaler' in half
    assert "import apex" not in half
    losses = run_files(tmp_path, {**texts, "use.py": USER}, "use.py")
    assert losses[0] == losses[1]


def test_a_class_beside_the_one_that_scales_is_left_alone() -> None:
    plain = "trainlib/updaters/plain.py"
    assert check_files(LIBRARY)[plain] == LIBRARY[plain].lstrip()


def test_a_switch_that_a_branch_of_the_constructor_sets_is_asked_below() -> None:
    chosen = "        if loss_fn is None:\n            self.half = False\n        else:\n            self.half = True\n"
    text = LIBRARY["trainlib/updaters/half.py"].replace(PROBE, chosen).replace("self.has_apex", "self.half")
    text = text.replace("import warnings", "from apex import amp").replace("apex.amp.scale", "amp.scale")
    half = check_files({**LIBRARY, "trainlib/updaters/half.py": text})["trainlib/updaters/half.py"]
    assert half.index("self.half = True") < half.index("enabled=self.half")


TRAINER = """
    import torch


    class Trainer:
        def __init__(self, model, optimizer):
            self.model = model
            self.optimizer = optimizer
            try:
                from apex import amp

                self.has_apex = True
            except ImportError:
                self.has_apex = False
            if self.has_apex:
                self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")

        def step(self, x, y):
            loss = (self.model(x) - y).pow(2).mean()
            if self.has_apex:
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            self.optimizer.step()
    """


def test_what_a_machine_without_apex_did_is_told() -> None:
    source = TRAINER.replace(
        "    def step(self, x, y):\n", "    def step(self, x, y):\n            from apex import amp\n\n"
    )
    result = rewrite(source)
    assert result.after is not None
    assert 'self.scaler = torch.amp.GradScaler("cuda")\n' in result.after
    assert "if self.has_apex" not in result.after
    codes = [f.code for f in result.findings]
    assert "AMP133" in codes
    assert "AMP531" not in codes


def test_a_field_that_is_switched_elsewhere_too_is_a_switch() -> None:
    source = TRAINER.replace(
        "    def step(self, x, y):\n", "    def step(self, x, y):\n            from apex import amp\n\n"
    )
    source += "\n        def off(self):\n            self.has_apex = False\n"
    after = rewrite(source).after
    assert after is None or "self.has_apex" in after.replace("self.has_apex =", "")


REFUSING = {
    "in a function": """
        def parse(args):
            if args.opt_level is not None:
                try:
                    import apex
                except ImportError:
                    raise ImportError("--opt-level requires apex")
            return args
        """,
    "at the top": """
        import sys

        try:
            import apex
        except ImportError:
            sys.exit("please install apex")


        def parse(args):
            return args
        """,
    "in a branch": """
        def parse(args):
            if args.opt_level is not None:
                try:
                    from apex import amp
                except ImportError:
                    args.opt_level = None
            return args
        """,
}
ASKED_FOR = """
    import torch
    from apex import amp
    from options import parse


    def main(args):
        args = parse(args)
        model = torch.nn.Linear(4, 2).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if args.opt_level is not None:
            model, optimizer = amp.initialize(model, optimizer, opt_level=args.opt_level)
        for x, y in args.loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            if args.opt_level is not None:
                with amp.scale_loss(loss, optimizer) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            optimizer.step()
    """


@pytest.mark.parametrize("refusing", REFUSING)
def test_what_refuses_to_go_on_without_apex_stays_for_a_program_that_stays(refusing: str) -> None:
    """Nothing reads what it imports: it stands there for its answer alone."""
    files = {"options.py": textwrap.dedent(REFUSING[refusing]), "train.py": textwrap.dedent(ASKED_FOR)}
    went = rewrite_files(files)
    assert went["train.py"].status == "migrated"
    assert "apex" not in (went["options.py"].after or "").replace("requires apex", "")
    stays = files["train.py"].replace("optimizer.step()", "optimizer.step(lambda: loss)")
    left = rewrite_files({**files, "train.py": stays})
    assert left["train.py"].status == "blocked"
    assert left["options.py"].after in (None, files["options.py"].lstrip("\n"))
    (found,) = left["options.py"].findings
    assert (found.code, found.status) == ("AMP101", "note")
    assert "it asks whether Apex is installed" in found.message


FLAGGED = """
    import torch
    from apex import amp
    from options import HAS_APEX
    from train import name


    def main(model, loader):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if not HAS_APEX:
            raise RuntimeError("please install apex")
        model, optimizer = amp.initialize(model, optimizer)
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            optimizer.step()
        print(name)
    """


def test_a_flag_that_nobody_reads_any_more_asks_nothing() -> None:
    """Were its guard left for what stays, a second run would take it away: nothing ties it to that by then."""
    flag = (
        "try:\n    from apex import amp\n    HAS_APEX = True\nexcept ImportError:\n    HAS_APEX = False\n\nWIDTH = 4\n"
    )
    stays = textwrap.dedent(ASKED_FOR).replace("optimizer.step()", "optimizer.step(lambda: loss)")
    train = stays.replace("from options import parse\n", "name = 'resnet'\n").replace("args = parse(args)", "pass")
    files = {"options.py": flag, "other.py": textwrap.dedent(FLAGGED), "train.py": train}
    went = rewrite_files(files)
    assert went["train.py"].status == "blocked"
    assert went["other.py"].status == "migrated"
    assert (went["options.py"].after or "").strip() == "WIDTH = 4"
