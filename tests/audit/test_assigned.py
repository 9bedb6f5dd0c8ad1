"""Names, attributes and items that a migration reads: each has a value on every path of every entry, or it is told."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.audit.helpers import doubts, doubts_of, told

SETUP = """
    import torch
    from apex import amp

    def validate(model, loader):
        for x in loader:
            model(x)

"""
SETUP_AFTER = """
    import torch

    def validate(model, loader, scaler):
        for x in loader:
            with torch.autocast("cuda", enabled=scaler.is_enabled()):
                model(x)

"""


def program(body: str, *, setup: str = SETUP) -> str:
    return setup + body


class TestModes:
    """Several modes of one main."""

    BEFORE = """
    def main(args, model, optimizer, loader):
        if args.mode == "train":
            model, optimizer = amp.initialize(model, optimizer)
            for x in loader:
                with amp.scale_loss(model(x), optimizer) as loss:
                    loss.backward()
                optimizer.step()
            validate(model, loader)
        elif args.mode == "validate":
            model = amp.initialize(model)
            validate(model, loader)
    """
    AFTER = """
    def main(args, model, optimizer, loader):
        if args.mode == "train":
            scaler = torch.amp.GradScaler("cuda")
            for x in loader:
                scaler.scale(model(x)).backward()
                scaler.step(optimizer)
                scaler.update()
            validate(model, loader, scaler)
        elif args.mode == "validate":
            validate(model, loader, scaler)
    """

    def test_assigned_in_one_mode_and_read_in_another(self) -> None:
        found = doubts(program(self.BEFORE), program(self.AFTER, setup=SETUP_AFTER))
        assert told(found, "AMP131") == [(19, "refuse")]
        assert "args.mode == 'train'" in next(d.message for d in found if d.code == "AMP131")

    def test_what_no_assignment_hangs_on_is_not_named(self) -> None:
        before, after = (
            "    def main(args, model, optimizer, loader):\n"
            "        if args.inspect:\n            return\n"
            f"{above}        if args.fp16:\n            settings = args.settings()\n{inside}"
            "        for x in loader:\n            loss = model(x)\n            loss.backward()\n            optimizer.step()\n"
            for above, inside in (
                ("", "            model, optimizer = amp.initialize(model, optimizer, loss_scale=settings.scale)\n"),
                (
                    "        scale = settings.scale\n",
                    '            scaler = torch.amp.GradScaler("cuda", init_scale=scale)\n',
                ),
            )
        )
        found = doubts(program(before), program(after, setup=SETUP_AFTER))
        assert told(found, "AMP131")
        assert all("args.inspect" not in d.message for d in found if d.code == "AMP131")

    def test_in_a_function_that_was_not_there_before(self) -> None:
        after = self.AFTER.replace("def main(", "def run_mode(")
        found = doubts(program(self.BEFORE), program(after, setup=SETUP_AFTER))
        assert [verdict for _, verdict in told(found, "AMP131")] == ["refuse"]

    def test_assigned_before_the_modes_part(self) -> None:
        after = self.AFTER.replace('        if args.mode == "train":\n', "", 1).replace(
            '            scaler = torch.amp.GradScaler("cuda")\n',
            '        scaler = torch.amp.GradScaler("cuda")\n        if args.mode == "train":\n',
        )
        assert not told(doubts(program(self.BEFORE), program(after, setup=SETUP_AFTER)), "AMP131")

    def test_the_same_test_guards_both(self) -> None:
        before = """
    def main(args, model, optimizer, loader):
        if args.fp16:
            model, optimizer = amp.initialize(model, optimizer)
        for x in loader:
            loss = model(x)
            if args.fp16:
                with amp.scale_loss(loss, optimizer) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            optimizer.step()
    """
        after = """
    def main(args, model, optimizer, loader):
        if args.fp16:
            scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            loss = model(x)
            if args.fp16:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            else:
                loss.backward()
                optimizer.step()
    """
        assert not told(doubts(program(before), program(after)), "AMP131")
        wrong = after.replace(
            "            if args.fp16:\n                scaler.scale",
            "            if args.train:\n                scaler.scale",
        )
        assert told(doubts(program(before), program(wrong)), "AMP131")

    def test_a_flag_that_was_copied_guards_it(self) -> None:
        before = """
    def main(args, model, optimizer, loss):
        if args.fp16:
            model, optimizer = amp.initialize(model, optimizer)
        use_amp = args.fp16
        loss.backward()
    """
        after = """
    def main(args, model, optimizer, loss):
        use_amp = args.fp16
        if args.fp16:
            scaler = torch.amp.GradScaler("cuda")
        if use_amp:
            scaler.scale(loss).backward()
        else:
            loss.backward()
    """
        assert not told(doubts(program(before), program(after)), "AMP131")

    def test_what_failed_before_is_not_the_migrations(self) -> None:
        """The optimizer is made where the scaler is: a run without the one is one without the other."""
        before = """
    def main(args, model, loader):
        if args.train:
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            model, optimizer = amp.initialize(model, optimizer)
        for x in loader:
            model(x).backward()
            optimizer.step()
    """
        after = """
    def main(args, model, loader):
        if args.train:
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            scaler.scale(model(x)).backward()
            scaler.step(optimizer)
            scaler.update()
    """
        assert not told(doubts(program(before), program(after)), "AMP131")

    def test_what_happens_every_other_step_happens(self) -> None:
        before = """
    def main(args, model, loader):
        for epoch in range(args.epochs):
            if epoch == args.first:
                optimizer = torch.optim.SGD(model.parameters(), 0.1)
                model, optimizer = amp.initialize(model, optimizer)
            for i, x in enumerate(loader):
                model(x).backward()
                if (i + 1) % args.accumulate == 0:
                    optimizer.step()
    """
        after = """
    def main(args, model, loader):
        for epoch in range(args.epochs):
            if epoch == args.first:
                optimizer = torch.optim.SGD(model.parameters(), 0.1)
                scaler = torch.amp.GradScaler("cuda")
            for i, x in enumerate(loader):
                scaler.scale(model(x)).backward()
                if (i + 1) % args.accumulate == 0:
                    scaler.step(optimizer)
                    scaler.update()
    """
        assert not told(doubts(program(before), program(after)), "AMP131")

    def test_a_script_that_leaves_early(self) -> None:
        before = """
    def main(args, model, optimizer, loss):
        if args.export:
            model(args.x)
            return
        model, optimizer = amp.initialize(model, optimizer)
        loss.backward()
    """
        after = """
    def main(args, model, optimizer, loss):
        if args.export:
            with torch.autocast("cuda", enabled=scaler.is_enabled()):
                model(args.x)
            return
        scaler = torch.amp.GradScaler("cuda")
        scaler.scale(loss).backward()
    """
        assert told(doubts(program(before), program(after)), "AMP131") == [(10, "refuse")]


class TestObjects:
    """Attributes of objects."""

    BEFORE = """
    class Trainer:
        def __init__(self, model, optimizer):
            self.model = model
            self.optimizer = optimizer

        def train(self, loader):
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer)
            for x in loader:
                with amp.scale_loss(self.model(x), self.optimizer) as loss:
                    loss.backward()
                self.optimizer.step()

        def find_learning_rate(self, loader):
            for x in loader:
                self.model(x).backward()
    """
    AFTER = """
    class Trainer:
        def __init__(self, model, optimizer):
            self.model = model
            self.optimizer = optimizer

        def train(self, loader):
            self.scaler = torch.amp.GradScaler("cuda")
            for x in loader:
                self.scaler.scale(self.model(x)).backward()
                self.scaler.step(self.optimizer)
                self.scaler.update()

        def find_learning_rate(self, loader):
            for x in loader:
                with torch.autocast("cuda", enabled=self.scaler.is_enabled()):
                    self.model(x).backward()
    """
    USE = """
    trainer = Trainer(torch.nn.Linear(1, 1), None)
"""

    def test_a_method_that_may_come_first_is_told(self) -> None:
        found = doubts(program(self.BEFORE), program(self.AFTER))
        assert told(found, "AMP131") == [(22, "review")]
        assert next(d.message for d in found if d.code == "AMP131").startswith(
            "find_learning_rate() of a new Trainer: self.scaler is assigned"
        )

    def test_a_function_inside_of_a_method_is_none_of_the_objects(self) -> None:
        inner = "            def one(x):\n                {}self.model(x).backward()\n            run(one, loader)\n"
        before, after = (
            t[: t.index("            for x in loader", t.index("def find"))] for t in (self.BEFORE, self.AFTER)
        )
        after += inner.format('with torch.autocast("cuda", enabled=self.scaler.is_enabled()):\n                    ')
        found = [d.message for d in doubts(program(before + inner.format("")), program(after)) if d.code == "AMP131"]
        assert [message.partition(":")[0] for message in found] == ["find_learning_rate() of a new Trainer"]

    @pytest.mark.parametrize("given", [True, False])
    def test_a_method_of_a_base_runs_those_of_the_class_that_its_object_is_of(self, given: bool) -> None:
        """What reads the field is a method of the class below, whose `__init__` may give it."""
        base = "    class Base:\n        def index(self, loader):\n            return self.find_learning_rate(loader)\n"
        first = 'self.optimizer = optimizer\n            self.scaler = torch.amp.GradScaler("cuda", enabled=False)\n'
        before, after = (base + t.replace("class Trainer:", "class Trainer(Base):") for t in (self.BEFORE, self.AFTER))
        if given:
            after = after.replace("self.optimizer = optimizer\n", first, 1)
        found = [
            d.message.partition(" of a new ") for d in doubts(program(before), program(after)) if d.code == "AMP131"
        ]
        assert [name for name, _, _ in found] == ([] if given else ["index()"])

    def test_each_class_is_told_of(self) -> None:
        both = [text + text.replace("Trainer", "Other") for text in (self.BEFORE, self.AFTER)]
        found = doubts(program(both[0]), program(both[1]))
        assert told(found, "AMP131") == [(22, "review"), (38, "review")]

    def test_a_method_that_does_come_first_is_refused(self) -> None:
        use = self.USE + "    trainer.find_learning_rate([])\n    trainer.train([])\n"
        assert told(doubts(program(self.BEFORE + use), program(self.AFTER + use)), "AMP131") == [(22, "refuse")]

    def test_a_method_that_comes_after_is_right(self) -> None:
        use = self.USE + "    trainer.train([])\n    trainer.find_learning_rate([])\n"
        assert not told(doubts(program(self.BEFORE + use), program(self.AFTER + use)), "AMP131")

    def test_made_with_the_object(self) -> None:
        made = '            self.optimizer = optimizer\n            self.scaler = torch.amp.GradScaler("cuda")\n'
        after = self.AFTER.replace("            self.optimizer = optimizer\n", made, 1)
        after = after.replace(
            '            self.scaler = torch.amp.GradScaler("cuda")\n            for', "            for"
        )
        assert not told(doubts(program(self.BEFORE), program(after)), "AMP131")

    def test_a_method_that_needs_what_else_is_set_up_there(self) -> None:
        """`step` needed the optimizer before, which `setup` makes together with the scaler."""
        before = """
    class Trainer:
        def __init__(self, model):
            self.model = model
            self.optimizer = None

        def setup(self):
            self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer)

        def step(self, loss):
            loss.backward()
            self.optimizer.step()
    """
        after = """
    class Trainer:
        def __init__(self, model):
            self.model = model
            self.optimizer = None

        def setup(self):
            self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
            self.scaler = torch.amp.GradScaler("cuda")

        def step(self, loss):
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
    """
        assert not told(doubts(program(before), program(after)), "AMP131")

    def test_options_that_another_script_lacks(self) -> None:
        common = """
            import torch

            def evaluate(args, model, x):
                return model(x)
            """
        after = """
            import torch

            def evaluate(args, model, x):
                with torch.autocast("cuda", enabled=args.opt_level != "O0"):
                    return model(x)
            """
        script = """
            import argparse
            from common import evaluate

            parser = argparse.ArgumentParser()
            parser.add_argument("--batch-size", type=int)
            OPTION
            args = parser.parse_args()
            evaluate(args, None, None)
            """
        train = script.replace("OPTION", 'parser.add_argument("--opt-level", default="O1")')
        test = script.replace("OPTION", 'parser.add_argument("--seed", type=int)')
        files = {"common.py": common, "train.py": train}
        assert not told(doubts_of(files, {"common.py": after}), "AMP131")
        found = doubts_of({**files, "test.py": test}, {"common.py": after})
        assert [(d.path, d.line, d.verdict) for d in found if d.code == "AMP131"] == [("common.py", 3, "refuse")]
        assert "test.py" in found[0].message
        with_group = test.replace(
            'parser.add_argument("--seed", type=int)', 'parser.add_argument_group("amp").add_argument("--opt_level")'
        )
        assert not told(doubts_of({**files, "test.py": with_group}, {"common.py": after}), "AMP131")

    def test_a_scaler_kept_on_the_arguments(self) -> None:
        before = """
    def validate_(args, model, x):
        return model(x)

    def main(args, model, optimizer):
        if args.fp16:
            model, optimizer = amp.initialize(model, optimizer)
        validate_(args, model, 1)

    def test(args, model):
        validate_(args, model, 1)

    if __name__ == "__main__":
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--fp16", action="store_true")
        args = parser.parse_args()
        CALL(args, None)
    """
        after = before.replace(
            "            model, optimizer = amp.initialize(model, optimizer)\n",
            '            args.scaler = torch.amp.GradScaler("cuda")\n',
        ).replace(
            "        return model(x)\n",
            '        with torch.autocast("cuda", enabled=args.scaler.is_enabled()):\n            return model(x)\n',
        )
        assert after != before
        for call, wrong in (("test", True), ("main", True)):
            found = doubts(program(before.replace("CALL", call)), program(after.replace("CALL", call)))
            assert bool(told(found, "AMP131")) is wrong
        always = after.replace(
            '        if args.fp16:\n            args.scaler = torch.amp.GradScaler("cuda")\n',
            '        args.scaler = torch.amp.GradScaler("cuda", enabled=args.fp16)\n',
        )
        assert always != after
        assert not told(
            doubts(program(before.replace("CALL", "main")), program(always.replace("CALL", "main"))), "AMP131"
        )


class TestChosenObjects:
    """An object that is made under a test: a run that passes that by fails at the object itself."""

    LEARNER = """
    import torch
    from apex import amp

    class Learner(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            self.half = config["half"]
            self.net = torch.nn.Linear(2, 1)
            self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
            if self.half:
                self.net, self.optimizer = amp.initialize(self.net, self.optimizer)

        def forward(self, x):
            return self.net(x).mean()

        def improve(self, loss):
            if self.half:
                with amp.scale_loss(loss, self.optimizer) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            self.optimizer.step()
    """
    AFTER = """
    import torch

    class Learner(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            self.half = config["half"]
            self.net = torch.nn.Linear(2, 1)
            self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
            self.scaler = torch.amp.GradScaler("cuda", enabled=self.half)

        def forward(self, x):
            with torch.autocast("cuda", enabled=self.half):
                return self.net(x).mean()

        def improve(self, loss):
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
    """
    TRAIN = """
    from data import clock, config, count, loader, options
    from learner import Learner

    if options.learner == "plain":
        learner = Learner(config)
    while True:
        for x in loader:
            with clock("step"):
                loss = learner.forward(x)
                if count > 1:
                    learner.module.improve(loss)
                else:
                    learner.improve(loss)
    """

    def found(self, train: str) -> list[str]:
        files = {"learner.py": self.LEARNER, "train.py": train}
        found = doubts_of(files, {"learner.py": self.AFTER})
        return [d.code for d in found if d.code != "AMP224"]  # nothing here clears gradients

    def test_a_run_without_the_object_failed_before(self) -> None:
        assert self.found(self.TRAIN) == []

    def test_one_in_which_another_object_takes_its_place_is_told(self) -> None:
        other = self.TRAIN.replace("while True:", "else:\n        learner = Learner.__new__(Learner)\n    while True:")
        assert "AMP531" in self.found(other)


class TestModules:
    """Globals, imports and the order of a script."""

    def test_a_global_that_only_the_script_has(self) -> None:
        before = {
            "train.py": """
            import torch

            def validate(model, x):
                return model(x)

            def train(hparams, model):
                validate(model, 1)

            if __name__ == "__main__":
                hparams = dict(fp16=True)
                train(hparams, None)
            """,
        }
        after = {
            "train.py": before["train.py"].replace(
                "return model(x)",
                'with torch.autocast("cuda", enabled=hparams["fp16"]):\n                    return model(x)',
            )
        }
        assert [(d.code, d.verdict) for d in doubts_of(before, after)] == [("AMP131", "look")]
        other = {"other.py": "from train import train\n\ntrain({}, None)\n"}
        assert [(d.code, d.verdict) for d in doubts_of({**before, **other}, after)] == [("AMP131", "review")]
        direct = {"other.py": "from train import validate\n\nvalidate(None, 1)\n"}
        assert [(d.code, d.verdict) for d in doubts_of({**before, **direct}, after)] == [("AMP131", "refuse")]
        was, now = (
            {"train.py": t["train.py"].replace("model(x)", "model(x, config)").replace(" = dict", " = config = dict")}
            for t in (before, after)
        )
        assert not doubts_of({**was, **other}, now)  # who imported train() met that before
        passed = before["train.py"].replace(
            "return model(x)",
            'with torch.autocast("cuda", enabled=hparams["fp16"]):\n                    return model(x)',
        )
        passed = passed.replace("validate(model, x)", "validate(model, x, hparams)").replace(
            "validate(model, 1)", "validate(model, 1, hparams)"
        )
        assert not doubts_of({**before, **other}, {"train.py": passed})

    def test_the_order_of_a_script_or_of_cells(self) -> None:
        before = """
    def step(model, x):
        model(x).backward()

    model = torch.nn.Linear(1, 1)
    step(model, torch.zeros(1))
    model = amp.initialize(model)
    step(model, torch.zeros(1))
    """
        after = """
    def step(model, x):
        scaler.scale(model(x)).backward()

    model = torch.nn.Linear(1, 1)
    step(model, torch.zeros(1))
    scaler = torch.amp.GradScaler("cuda")
    step(model, torch.zeros(1))
    """
        found = doubts(program(before), program(after))
        assert told(found, "AMP131") == [(10, "refuse")]
        assert found[0].message == "scaler has no value here in a run of the script: only other paths assign it"
        earlier = after.replace('    scaler = torch.amp.GradScaler("cuda")\n', "").replace(
            "    model = ", '    scaler = torch.amp.GradScaler("cuda")\n    model = '
        )
        assert not told(doubts(program(before), program(earlier)), "AMP131")

    def test_a_function_handed_on_runs_later(self) -> None:
        before = """
    def main(engine, model, optimizer):
        def update(x):
            model(x).backward()

        trainer = engine(update)
        model, optimizer = amp.initialize(model, optimizer)
        trainer.run()
    """
        after = """
    def main(engine, model, optimizer):
        def update(x):
            scaler.scale(model(x)).backward()

        trainer = engine(update)
        scaler = torch.amp.GradScaler("cuda")
        trainer.run()
    """
        assert not told(doubts(program(before), program(after)), "AMP131")
        never = after.replace("        scaler = torch", "        if optimizer:\n            scaler = torch")
        assert told(doubts(program(before), program(never)), "AMP131")

    def test_names_that_went_with_an_import(self) -> None:
        before = """
        try:
            from apex import amp
            HAS_APEX = True
        except ImportError:
            HAS_APEX = False

        def main(args):
            if args.fp16 and not HAS_APEX:
                raise ImportError("apex")
        """
        gone = "def main(args):\n    if args.fp16 and not HAS_APEX:\n        raise ImportError('apex')\n"
        assert told(doubts(before, gone), "AMP131")
        assert not told(doubts(before, "def main(args):\n    pass\n"), "AMP131")
        other = {"other.py": "from train import HAS_APEX\n"}
        found = doubts_of({"train.py": before, **other}, {"train.py": "def main(args):\n    pass\n"})
        assert [(d.path, d.code, d.verdict) for d in found] == [("train.py", "AMP131", "refuse")]

    def test_a_name_of_a_statement_that_went(self) -> None:
        before = """
    def main(model, optimizer, loss):
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        print(scaled.item())
    """
        after = """
    def main(model, optimizer, loss, scaler):
        scaler.scale(loss).backward()
        print(scaled.item())
    """
        assert told(doubts(program(before), program(after)), "AMP131")


class TestOtherObjects:
    """A base class in common does not make one object of two."""

    BEFORE = """
    import torch
    from apex import amp

    class Base:
        def train(self):
            self.run_step()

    class Stepper(Base):
        def __init__(self, model, optimizer):
            self.model, self.optimizer = model, optimizer

        def run_step(self):
            with amp.scale_loss(self.model(1), self.optimizer) as loss:
                loss.backward()
            self.optimizer.step()

    class Runner(Base):
        def __init__(self, model, optimizer):
            model, optimizer = amp.initialize(model, optimizer)
            self.stepper = Stepper(model, optimizer)

        def run_step(self):
            self.stepper.run_step()
    """
    AFTER = """
    import torch

    class Base:
        def train(self):
            self.run_step()

    class Stepper(Base):
        def __init__(self, model, optimizer):
            self.model, self.optimizer = model, optimizer

        def run_step(self):
            with torch.autocast("cuda"):
                loss = self.model(1)
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()

    class Runner(Base):
        def __init__(self, model, optimizer):
            self.scaler = torch.amp.GradScaler("cuda")
            self.stepper = Stepper(model, optimizer)

        def run_step(self):
            self.stepper.run_step()
    """

    def test_an_attribute_of_a_sibling(self) -> None:
        assert told(doubts(self.BEFORE, self.AFTER), "AMP131") == [(14, "refuse")]

    def test_an_attribute_given_from_outside(self) -> None:
        after = self.AFTER.replace(
            "self.stepper = Stepper(model, optimizer)\n",
            "self.stepper = Stepper(model, optimizer)\n            self.stepper.scaler = self.scaler\n",
        )
        assert told(doubts(self.BEFORE, after), "AMP131") == []

    def test_a_class_of_both(self) -> None:
        both = "\n    class Both(Stepper, Runner):\n        pass\n"
        made = [t.replace("= Stepper(", "= Both(") + both for t in (self.BEFORE, self.AFTER)]
        assert told(doubts(*made), "AMP131") == []
        assert told(doubts(self.BEFORE + both, self.AFTER + both), "AMP131") == [
            (14, "refuse")
        ]  # what is made is no Both


def test_what_initialize_was_given_had_a_value_or_raised_there() -> None:
    """The function asks so much that not all its runs can be followed before; one without an optimizer failed, too."""
    asked = "\n".join(f"        if args.a{i} == 0:\n            print({i})" for i in range(5))
    left = "\n".join(f"        if args.a{i} == 0:\n            return" for i in range(5))
    text = f"""
    import torch
    from apex import amp

    def main(args, model, loader):
        if args.kind == 1:
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
{asked}
        SETUP
{left}
        for x in loader:
            loss = model(x).sum()
            STEP
    """
    before = text.replace(
        "SETUP", "if args.half:\n            model, optimizer = amp.initialize(model, optimizer)"
    ).replace(
        "STEP",
        "if args.half:\n                with amp.scale_loss(loss, optimizer) as scaled:\n"
        "                    scaled.backward()\n            optimizer.step()",
    )
    after = text.replace("SETUP", 'scaler = torch.amp.GradScaler("cuda", enabled=args.half)').replace(
        "STEP", "scaler.scale(loss).backward()\n            scaler.step(optimizer)\n            scaler.update()"
    )
    assert not told(doubts(before, after.replace("    from apex import amp\n", "")), "AMP131")


@pytest.mark.parametrize(
    ("asked", "refused"),
    [
        ("state.get('scaler')", False),
        ("state.get('scaler') is not None", False),
        ("'scaler' in state", False),
        ("'amp' in state", True),
        ("states.get('scaler')", True),
    ],
)
def test_an_item_is_there_where_a_test_found_it(asked: str, refused: bool) -> None:
    """On one path the dict is a new one without the key, and no run comes from there to the read."""
    before = """
    import torch
    from apex import amp

    def load(path, model, states):
        state = torch.load(path)
        if 'model' not in state:
            state = {'model': state}
        model.load_state_dict(state['model'])
        if 'amp' in state:
            amp.load_state_dict(state['amp'])
    """
    after = before.replace("    from apex import amp\n", "").replace("states)", "states, scaler)")
    after = after.replace("if 'amp' in state:", f"if {asked}:")
    after = after.replace("amp.load_state_dict(state['amp'])", "scaler.load_state_dict(state['scaler'])")
    found = told(doubts(before, after), "AMP131")
    assert [verdict for _, verdict in found] == (["refuse"] if refused else [])


LOADING = """
import torch
IMPORT

class Base:
    def __init__(self):
        self.step = 0

class Trainer(BASE):
    MEMBER

    def __init__(self, model, optimizer, start=None):
        super().__init__()
        self.model, self.optimizer = model, optimizer
        FIRST
        if start:
            self.load(start)
        SETUP

    def load(self, path):
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        LOAD
"""


def _loaded(base: str = "Base", member: str = "pass", first: str = "pass", load: str = "apex") -> list[str]:
    """The verdicts on a method that reads the scaler and is called by `__init__` before that is made."""
    common = LOADING.replace("BASE", base).replace("MEMBER", member).replace("FIRST", first)
    before = common.replace("IMPORT", "from apex import amp")
    setup = 'self.model, self.optimizer = amp.initialize(model, optimizer, opt_level="O1")'
    loads = 'amp.load_state_dict(state["amp"])' if load == "apex" else "print(state)"
    before = before.replace("SETUP", setup).replace("LOAD", loads)
    after = common.replace("IMPORT", "").replace("SETUP", 'self.scaler = torch.amp.GradScaler("cuda")')
    after = after.replace("LOAD", 'self.scaler.load_state_dict(state["scaler"])')
    return [d.verdict for d in doubts(before, after) if d.code == "AMP131" and "self.scaler has no value" in d.message]


def test_a_method_that_init_calls_before_the_attribute_is_made() -> None:
    assert _loaded(load="other") == ["refuse"]
    assert _loaded() == ["review"]  # Apex raised there, too


def test_an_object_that_has_the_attribute_by_then() -> None:
    assert not _loaded(first='self.scaler = torch.amp.GradScaler("cuda")')
    assert not _loaded(member="scaler = None")
    assert not _loaded(base="library.Base")  # which may give it


SETTING = {
    "config.py": """
        class Config:
            def __init__(self):
                self.mode = "train"
        """,
    "main.py": """
        from apex import amp
        from config import Config
        from library import Trainer, predict

        if __name__ == "__main__":
            config = Config()
            if config.mode == "train":
                trainer = Trainer()
                trainer.train()
            else:
                predict(config)
        """,
}


@pytest.mark.parametrize("later", ["", "\n    def switch(self):\n        self.mode = 'predict'\n"])
def test_a_setting_that_nothing_changes_may_be_written_otherwise(later: str) -> None:
    """As it is written the other mode never runs; whoever runs it writes the other one."""
    before = {p: dedent(t) for p, t in SETTING.items()}
    before["config.py"] += later
    after = {"main.py": before["main.py"].replace("predict(config)", "predict(config, trainer.scaler)")}
    after["main.py"] = after["main.py"].replace("from apex import amp\n", "")
    found = [d for d in doubts_of(before, after) if d.code == "AMP131"]
    assert [(d.path, d.verdict) for d in found] == ([] if later else [("main.py", "refuse")])
    local = {"main.py": before["main.py"].replace("config = Config()", "mode = 'train'").replace("config.mode", "mode")}
    local["main.py"] = (
        local["main.py"].replace("predict(config)", "predict()").replace("from config import Config\n", "")
    )
    changed = {
        "main.py": local["main.py"]
        .replace("predict()", "predict(trainer.scaler)")
        .replace("from apex import amp\n", "")
    }
    assert told(doubts_of(local, changed), "AMP131")


def test_a_method_of_an_object_made_for_it() -> None:
    before = {
        "learner.py": """
            from apex import amp

            class Learner:
                def train(self, args, model, optimizer):
                    if args.fp16:
                        model, optimizer = amp.initialize(model, optimizer)

                def evaluate(self, model, loader):
                    return [model(x) for x in loader]
            """,
        "main.py": """
            from learner import Learner

            def run(args, model, loader):
                return Learner().evaluate(model, loader)
            """,
    }
    after = """
        import torch

        class Learner:
            def train(self, args, model, optimizer):
                self.use_amp = args.fp16

            def evaluate(self, model, loader):
                with torch.autocast("cuda", enabled=self.use_amp):
                    return [model(x) for x in loader]
        """
    (found,) = [d for d in doubts_of(before, {"learner.py": after}) if d.code == "AMP131"]
    assert (found.verdict, found.construct, "run()" in found.message) == ("refuse", "self.use_amp", True)
    given = after.replace("class Learner:\n", "class Learner:\n            use_amp = False\n\n")
    assert not told(doubts_of(before, {"learner.py": given}), "AMP131")
    kept = {**before, "main.py": before["main.py"].replace("Learner().evaluate", "Learner.make().evaluate")}
    assert not told(doubts_of(kept, {"learner.py": after}), "AMP131")


HANDED_OUT = {"mixed/losses.py": "def scale_loss(loss):\n    return loss\n", "mixed/other.py": ""}


@pytest.mark.parametrize("still", [True, False])
def test_a_package_hands_out_what_its_files_define(still: bool) -> None:
    """Its users are out of sight: an import that nothing here reads is what they have the name from."""
    before = {**HANDED_OUT, "mixed/__init__.py": "import os\nfrom mixed.losses import scale_loss\n"}
    after = {"mixed/__init__.py": "import os\n"} | ({} if still else {"mixed/losses.py": "SCALE = 1\n"})
    found = [d for d in doubts_of(before, after) if d.code == "AMP131" and d.path == "mixed/__init__.py"]
    assert [(d.line, d.verdict) for d in found] == ([(2, "refuse")] if still else [])


def test_a_package_that_hands_out_one_name_less() -> None:
    text = "def scale_loss(loss):\n    return loss\n\n\ndef other():\n    return 1\n"
    before = {"mixed/losses.py": text, "mixed/__init__.py": "from .losses import other, scale_loss\n"}
    after = {"mixed/__init__.py": "from .losses import other\n"}
    assert told(doubts_of(before, after), "AMP131") == [(1, "refuse")]
