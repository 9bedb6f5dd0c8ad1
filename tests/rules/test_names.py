"""A name that a migration introduces is never one that the program has: what is emitted is run beside the original."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite, run_files
from tests.rules.trained import check_trained

DATA = """
class Double:
    factor = 2.0

    def transform(self, x):
        return self.factor * x

"""
# The loop of each program: `{data}` is the program's own scaler as it reads there.
LOOP = """
    for x, y in loader:
        x = {data}.transform(x)
        optimizer.zero_grad()
        with amp.scale_loss(criterion(model(x), y), optimizer) as scaled_loss:
            scaled_loss.backward()
        seen.append(float(clip_grad_norm_(amp.master_params(optimizer), 1.0)))
        seen.append({data}.transform(1.0))
        optimizer.step()
"""
INITIALIZE = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'

IN_SIGHT = {
    "global": f"scaler = Double()\n\n\ndef main(model, optimizer):\n    {INITIALIZE}{LOOP}\n\nmain(model, optimizer)\n",
    "parameter": f"def main(model, optimizer, scaler):\n    {INITIALIZE}{LOOP}\n\nmain(model, optimizer, Double())\n",
    "closure": f"""
def main(model, optimizer):
    scaler = Double()
    {INITIALIZE}

    def epoch():
        for _ in range(2):
            run(model, optimizer, scaler)

    epoch()


def run(model, optimizer, scaler):{LOOP}

main(model, optimizer)
""",
    "rebound below": f"""
def main(model, optimizer):
    {INITIALIZE}
    data = Double()

    def epoch():
        scaler = data
{LOOP.replace("    for", "        for").replace(chr(10) + "    ", chr(10) + "        ").replace("            for", "        for")}

    epoch()


main(model, optimizer)
""",
    "keyword": f"""
def evaluate(**given):
    return report(**given)


def report(scaler):
    return scaler.transform(3.0)


def main(model, optimizer, data):
    {INITIALIZE}{LOOP.replace("{data}", "data")}
        seen.append(evaluate(scaler=data))


main(model, optimizer, Double())
""",
    "option": f"""
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--scaler", default=Double())
args = parser.parse_args([])
args.amp = amp


def main(args, model, optimizer):
    model, optimizer = args.amp.initialize(model, optimizer, opt_level="O1"){LOOP.replace("{data}", "args.scaler")}

main(args, model, optimizer)
""",
    "attribute of a base": f"""
class Base:
    def __init__(self):
        self.scaler = Double()


class Trainer(Base):
    def __init__(self, model, optimizer):
        super().__init__()
        self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")

    def train(self):
        model, optimizer = self.model, self.optimizer{LOOP.replace(chr(10), chr(10) + "    ").replace("{data}", "self.scaler")}

Trainer(model, optimizer).train()
""",
    "property of a subclass": f"""
class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")

    def train(self):
        model, optimizer = self.model, self.optimizer{LOOP.replace(chr(10), chr(10) + "    ").replace("{data}", "self.data()")}


class Doubling(Trainer):
    @property
    def scaler(self):
        return Double()

    def data(self):
        return self.scaler


Doubling(model, optimizer).train()
""",
    "getattr": f"""
class Holder:
    pass


holder = Holder()
setattr(holder, "scaler", Double())
holder.optimizer = optimizer
model, holder.optimizer = amp.initialize(model, holder.optimizer, opt_level="O1")


def train(holder, model):
    optimizer = holder.optimizer{LOOP.replace("{data}", 'getattr(holder, "scaler")')}

train(holder, model)
""",
}


@pytest.mark.parametrize("where", IN_SIGHT)
def test_a_scaler_of_the_programs_own_stays_what_it_is(where: str) -> None:
    after = check_trained(DATA + IN_SIGHT[where].replace("{data}", "scaler"))
    assert "grad_scaler.step(" in after
    assert "grad_scaler.update()" in after


def test_each_scaler_of_several_has_a_name_of_its_own() -> None:
    """One stem for all of a unit's: if one of them is taken, none has it."""
    program = """
    scalerD = 3
    netG, netD = build(), build()
    optG, optD = (torch.optim.SGD(n.parameters(), lr=0.1) for n in (netG, netD))
    [netG, netD], [optG, optD] = amp.initialize([netG, netD], [optG, optD], opt_level="O1", num_losses=2)
    for x, y in loader:
        optD.zero_grad()
        with amp.scale_loss(criterion(netD(x), y), optD, loss_id=0) as scaled:
            scaled.backward()
        optD.step()
        optG.zero_grad()
        with amp.scale_loss(criterion(netG(x), y), optG, loss_id=1) as scaled:
            scaled.backward()
        seen.append(grad_norm(netD) * 0 + scalerD)
        optG.step()
    """
    after = check_trained(program)
    assert "grad_scalerD = " in after
    assert "grad_scalerG = " in after


FILES = {
    "parts.py": """
        import torch

        torch.manual_seed(0)
        batches = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(3)]


        class Double:
            mean = 0.5

            def transform(self, x):
                return 2 * x


        class Keeper:
            def __init__(self):
                self.scaler = Double()


        scaler = Double()
        """,
    "train.py": """
        import json

        import torch
        from apex import amp
        from parts import *

        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x, y in batches:
            loss = (model(scaler.transform(x)) - y).pow(2).mean()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        torch.save({"model": model.state_dict(), "amp": amp.state_dict(), "scaler": scaler.mean}, "checkpoint.pt")
        state = torch.load("checkpoint.pt")
        amp.load_state_dict(state["amp"])
        print(json.dumps({"mean": state["scaler"], "keys": sorted(state)}))
        """,
}


def test_neither_a_star_import_nor_a_key_of_the_checkpoint_is_lost(tmp_path: Path) -> None:
    texts = check_files(FILES, device="cpu")
    assert 'if "grad_scaler" in state:\n    grad_scaler.load_state_dict(state["grad_scaler"])' in texts["train.py"]
    assert run_files(tmp_path, texts, "train.py") == {"mean": 0.5, "keys": ["grad_scaler", "model", "scaler"]}


def test_a_base_class_in_another_file_keeps_its_scaler(tmp_path: Path) -> None:
    train = """
        import json

        import torch
        from apex import amp
        import parts


        class Trainer(parts.Keeper):
            def __init__(self, model):
                self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                self.model = model
                self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")
                super().__init__()

            def train(self):
                for x, y in parts.batches:
                    loss = (self.model(self.scaler.transform(x)) - y).pow(2).mean()
                    with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                        scaled_loss.backward()
                    self.optimizer.step()
                return self.scaler.mean


        print(json.dumps({"mean": Trainer(torch.nn.Linear(4, 1)).train()}))
        """
    texts = check_files({"parts.py": FILES["parts.py"], "train.py": train}, device="cpu")
    assert run_files(tmp_path, texts, "train.py") == {"mean": 0.5}


def test_a_loss_that_is_given_a_name_does_not_take_that_of_a_function() -> None:
    after = check_trained(
        """
    def loss(output, y):
        return criterion(output, y)


    def main(model, optimizer):
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x, y in loader:
            optimizer.zero_grad()
            with amp.scale_loss(loss(model(x), y), optimizer) as scaled_loss:
                scaled_loss.backward()
            seen.append(float(clip_grad_norm_(amp.master_params(optimizer), 1.0)))
            optimizer.step()


    main(model, optimizer)
    """
    )
    assert "batch_loss = loss(model(x), y)" in after


@pytest.mark.parametrize("made", ["dict(model=1, amp=amp.state_dict())", "state.update(amp=amp.state_dict())"])
def test_a_key_that_is_written_as_a_keyword_is_renamed_like_any_other(made: str) -> None:
    after = rewrite(
        f"""
        import torch
        from apex import amp

        model, optimizer = build()
        state = {{}}
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x, y in loader:
            loss = criterion(model(x), y)
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        made = {made}
        amp.load_state_dict(torch.load("checkpoint.pt")["amp"])
        """
    ).after
    assert after is not None
    assert made.replace("amp=amp.", "scaler=scaler.") in after
    assert 'get("scaler")' in after


@pytest.mark.parametrize(
    "read", ['open(f"run_{args.loss_scale}.txt")', "print(args.loss_scale)"], ids=["name of a file", "log"]
)
def test_an_option_that_is_read_elsewhere_keeps_its_value(read: str) -> None:
    source = """
        import argparse
        import torch
        from apex import amp

        parser = argparse.ArgumentParser()
        parser.add_argument("--loss-scale", default=None)
        args = parser.parse_args()
        model, optimizer = build()
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale=args.loss_scale)
        for x, y in loader:
            loss = criterion(model(x), y)
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        {read}
        """
    after = rewrite(source.replace("{read}", read)).after
    assert after is not None
    assert '\nloss_scale = None if args.loss_scale in (None, "dynamic") else float(args.loss_scale)\n' in after
    assert "scaler.update(loss_scale)" in after
    assert "args.loss_scale = " not in after
    assert "args.loss_scale = " in (rewrite(source.replace("{read}", "pass")).after or "")  # nobody else reads it
