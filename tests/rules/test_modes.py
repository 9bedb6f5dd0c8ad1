"""Modes of one program that never come by `initialize`: what they run was in float32, and stays so."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.rules.helpers import check_files, rewrite_files, run_files

PROGRAM = """
    import json
    import sys
    import types
    import torch
    from apex import amp

    def run(cfg, model, loader, optimizer=None):
        dtypes = []
        for x in loader:
            output = model(x)
            dtypes.append(str(output.dtype))
            if optimizer is not None:
                optimizer.zero_grad()
                with amp.scale_loss(output.float().sum(), optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
        return dtypes

    def test(cfg, model, loader):
        return run(cfg, model, loader)

    def predict(cfg, model, loader):
        return [str(model(x).dtype) for x in loader]

    def train(cfg, model, loader):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1", enabled=cfg.fp16)
        return run(cfg, model, loader, optimizer) + run(cfg, model, loader)

    def main(cfg):
        model = torch.nn.Linear(4, 1)
        loader = [torch.ones(2, 4)]
        DISPATCH

    said = [main(types.SimpleNamespace(mode=mode, fp16=True)) for mode in ("train", "test", "predict")]
    print(json.dumps(said))
    """
EITHER = """
        if cfg.mode == "train":
            return train(cfg, model, loader)
        elif cfg.mode == "test":
            return test(cfg, model, loader)
        else:
            return predict(cfg, model, loader)
"""
EARLIER = """
        if cfg.mode == "test":
            return test(cfg, model, loader)
        if cfg.mode == "predict":
            return predict(cfg, model, loader)
        return train(cfg, model, loader)
"""
LOOPS = """
        if cfg.mode == "train":
            for _ in range(1):
                said = train(cfg, model, loader)
        elif cfg.mode == "test":
            for _ in range(2):
                said = test(cfg, model, loader)
        else:
            while True:
                said = predict(cfg, model, loader)
                break
        return said
"""
EXCLUDED = """
        said = []
        if cfg.mode == "train":
            said += train(cfg, model, loader)
        if cfg.mode != "train" and cfg.mode == "test":
            said += test(cfg, model, loader)
        elif cfg.mode != "train":
            said += predict(cfg, model, loader)
        return said
"""
CHANGED_BETWEEN = """
        said = []
        if cfg.mode == "train":
            said += train(cfg, model, loader)
            cfg.mode = "predict"
        if cfg.mode != "train":
            said += predict(cfg, model, loader)
        return said
"""
AFTER_EACH_OTHER = """
        said = train(cfg, model, loader)
        if cfg.mode == "test":
            said = test(cfg, model, loader)
        if cfg.mode == "predict":
            said = predict(cfg, model, loader)
        return said
"""
IN_A_LOOP = """
        for mode in (cfg.mode, "test"):
            if mode == "train":
                said = train(cfg, model, loader)
            elif mode == "test":
                said = test(cfg, model, loader)
            else:
                said = predict(cfg, model, loader)
        return said
"""


def program(dispatch: str) -> str:
    return PROGRAM.replace("        DISPATCH\n", textwrap.indent(textwrap.dedent(dispatch).strip("\n"), " " * 8) + "\n")


@pytest.mark.parametrize(
    "dispatch",
    [EITHER, EARLIER, LOOPS, EXCLUDED],
    ids=["branches", "returns", "loops in branches", "tests that exclude each other"],
)
def test_a_mode_that_passes_the_set_up_by(dispatch: str, tmp_path: Path) -> None:
    texts = check_files({"main.py": program(dispatch)}, device="cpu")
    text = texts["main.py"]
    assert "    return run(cfg, model, loader)\n" in text, "the switch is left out"
    assert "return [str(model(x).dtype) for x in loader]" in text, "no region in code that only such a mode runs"
    half, full = "torch.float16", "torch.float32"
    assert run_files(tmp_path, texts, "main.py") == [[half, half], [full], [full]]


def test_what_raised_in_such_a_mode_before_holds_nothing_back() -> None:
    """What a program makes half by itself met float32 weights there, as no set-up had come: it does so now."""
    found = "said = []\n        for x in loader:\n            image = x.half() / 255\n"
    found += "            output = model(image)\n            said.append(str(output.dtype))\n        return said"
    source = program(EXCLUDED).replace("return [str(model(x).dtype) for x in loader]", found).replace("O1", "O2")
    results = rewrite_files({"main.py": source}, device="cpu")
    assert results["main.py"].after is not None
    predicting = results["main.py"].after.partition("def predict")[2].partition("def train")[0]
    assert "image = x.half()" in predicting
    assert "autocast" not in predicting
    assert not [f for f in results["main.py"].findings if f.status == "manual"]


@pytest.mark.parametrize(
    "dispatch",
    [AFTER_EACH_OTHER, IN_A_LOOP, CHANGED_BETWEEN],
    ids=["after each other", "in a loop", "the mode changes"],
)
def test_a_mode_that_may_follow_the_set_up(dispatch: str) -> None:
    text = check_files({"main.py": program(dispatch)}, device="cpu")["main.py"]
    predicting = text[text.index("def predict") : text.index("def train")]
    assert 'with torch.autocast("cpu", dtype=torch.float16, enabled=cfg.fp16):' in predicting


COMMANDS = """
    import json
    import sys
    import click
    import torch
    from apex import amp

    MODEL, LOADER, DTYPES = torch.nn.Linear(4, 1), [torch.ones(2, 4)], []

    @click.group()
    def cli():
        GROUP

    def set_up(level):
        return amp.initialize(MODEL, torch.optim.SGD(MODEL.parameters(), lr=0.1), opt_level=level)

    def evaluate(config, model):
        for x in LOADER:
            DTYPES.append(str(model(x).dtype))

    @cli.command()
    @click.option("--level", default="O1")
    def train(level):
        config = {"level": level}
        model, optimizer = amp.initialize(MODEL, torch.optim.SGD(MODEL.parameters(), lr=0.1), opt_level=config["level"])
        for x in LOADER:
            with amp.scale_loss(model(x).float().sum(), optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        evaluate(config, model)

    @cli.command("test")
    @click.option("--level", default="O1")
    def tested(level):
        config = {"level": level}
        evaluate(config, MODEL)

    @cli.command()
    @click.option("--level", default="O1")
    def embed(level):
        config = {"level": level}
        for x in LOADER:
            DTYPES.append(str(MODEL(x).dtype))

    if __name__ == "__main__":
        for name in ("train", "test", "embed"):
            cli([name], standalone_mode=False)
        print(json.dumps(DTYPES))
    """


def test_a_command_beside_the_one_that_sets_up(tmp_path: Path) -> None:
    """Of the commands of a command line a run is one: what is no training came by no set-up."""
    texts = check_files({"main.py": COMMANDS.replace("GROUP", "pass")}, device="cpu")
    assert texts["main.py"].count("torch.autocast(") == 2, "the command that embeds has no region"
    assert run_files(tmp_path, texts, "main.py") == ["torch.float16", "torch.float32", "torch.float32"]


@pytest.mark.parametrize(
    ("group", "others"),
    [("set_up('O1')", {}), ("pass", {"@click.group()": "@click.group(chain=True)"})],
    ids=["the group sets up", "one after another"],
)
def test_a_command_that_may_follow_the_set_up(group: str, others: dict[str, str]) -> None:
    program = COMMANDS.replace("GROUP", group)
    for old, new in others.items():
        program = program.replace(old, new)
    text = check_files({"main.py": program}, device="cpu")["main.py"]
    assert "torch.autocast(" in text[text.index("def embed") :]


BY_NAME = {
    "solvers.py": """
        import torch
        from apex import amp
        from library import build

        class SmallSolver:
            def __init__(self, args):
                self.args = args
                self.model, self.optimizer = build(args)

            def train(self, loader):
                if self.args.fp16:
                    self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")
                for x in loader:
                    loss = self.model(x).pow(2).mean()
                    if self.args.fp16:
                        with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                            scaled_loss.backward()
                    else:
                        loss.backward()
                    self.optimizer.step()
                    self.optimizer.zero_grad()

            def predict(self, loader):
                return [self.model(x) for x in loader]
        """,
    "main.py": """
        import solvers
        from library import batches, parse

        args = parse()
        solver = getattr(solvers, args.kind + "Solver")(args)
        if args.train:
            solver.train(batches())
        else:
            solver.predict(batches())
        """,
}


def test_a_class_that_is_chosen_by_a_computed_name() -> None:
    """Its prediction never came by the set-up: nothing runs under autocast there."""
    results = rewrite_files(BY_NAME)
    after = results["solvers.py"].after
    assert after is not None
    assert after.count("torch.autocast(") == 1
    assert "predict(self, loader):\n        return [self.model(x) for x in loader]" in after


FIRST = """
    import json
    import torch
    from apex import amp

    def dtypes(model, loader):
        return [str(model(x).dtype) for x in loader]

    def main(loader):
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        LOOP
            before = dtypes(model, loader)
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x in loader:
                optimizer.zero_grad()
                with amp.scale_loss(model(x).float().sum(), optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
            return [before, dtypes(model, loader)]

    print(json.dumps(main([torch.ones(2, 4)])))
    """


def test_what_stands_above_the_set_up_ran_in_float32(tmp_path: Path) -> None:
    texts = check_files({"main.py": FIRST.replace("LOOP", "if loader:")}, device="cpu")
    assert run_files(tmp_path, texts, "main.py") == [["torch.float32"], ["torch.float16"]]
    assert "before = dtypes(model, loader)\n" in texts["main.py"], "the switch is left out"


def test_in_a_loop_it_may_come_after_as_well() -> None:
    texts = check_files({"main.py": FIRST.replace("LOOP", "for _ in range(2):")}, device="cpu")
    assert 'with torch.autocast("cpu", dtype=torch.float16):\n        return [str(model(x).dtype)' in texts["main.py"]


SPAWNED = """
    import argparse
    import json
    import torch
    import torch.multiprocessing as mp
    from apex import amp

    def train(args, model, loader):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if args.fp16:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x in loader:
            loss = model(x).float().sum()
            if args.fp16:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
        return evaluate(args, model, loader)

    def evaluate(args, model, loader):
        return [str(model(x).dtype) for x in loader]

    def work(rank, args):
        torch.manual_seed(0)
        loader, said = [torch.ones(2, 4)], []
        model = torch.nn.Linear(4, 1)
        said += evaluate(args, model, loader)
        if args.do_train:
            said += train(args, model, loader)
        said += evaluate(args, model, loader)
        print(json.dumps(said))

    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--fp16", action="store_true")
        parser.add_argument("--do_train", action="store_true")
        args = parser.parse_args(ARGUMENTS)
        START

    if __name__ == "__main__":
        main()
    """


@pytest.mark.parametrize("training", [True, False])
def test_what_a_process_begins_with(training: bool, tmp_path: Path) -> None:
    """An evaluation above the training of a process was in float32, and one below where nothing was trained."""
    program = SPAWNED.replace("START", "mp.spawn(work, nprocs=1, args=(args,))")
    text = check_files({"main.py": program.replace("ARGUMENTS", "")}, device="cpu")["main.py"]
    assert "    said += evaluate(args, model, loader)\n    if args.do_train:" in text, "the switch is left out"
    assert "    said += evaluate(args, model, loader, use_amp=args.do_train and args.fp16)\n" in text
    text = text.replace("parse_args()", f"parse_args({['--fp16', *(['--do_train'] * training)]})")
    text = text.replace("mp.spawn(work, nprocs=1, args=(args,))", "work(0, args)")
    half, full = "torch.float16", "torch.float32"
    assert run_files(tmp_path, {"main.py": text}, "main.py") == ([full, half, half] if training else [full, full])


@pytest.mark.parametrize("start", ["launch(work, args)", "Thread(target=work, args=(0, args)).start()"])
def test_a_function_that_something_else_may_run_again(start: str) -> None:
    """What is handed on for whatever may come to an evaluation after a training; a thread shares the process."""
    program = SPAWNED.replace("START", start).replace("ARGUMENTS", "")
    program = program.replace(
        "from apex import amp", "from apex import amp\n    from somewhere import Thread, launch, Thread"
    )
    text = check_files({"main.py": program}, device="cpu")["main.py"]
    assert 'torch.autocast("cpu", dtype=torch.float16, enabled=args.fp16)' in text[text.index("def evaluate") :]


ARGUED = """
    def parse(parser):
        parser.add_argument("--fp16", action="store_true")
        parser.add_argument("--do_train", action="store_true")
        parser.add_argument("--chunks", type=int, default=1)

    def main(args):
        model, loader = torch.nn.Linear(4, 1), [torch.ones(2, 4)]
        if args.do_train:
            if args.chunks > 1:
                for _ in range(args.chunks):
                    train(args, model, loader)
            else:
                train(args, model, loader)
        return evaluate(args, model, loader)
    """
TRAINING = SPAWNED.partition("    def work(")[0]
RUN = "parser = argparse.ArgumentParser()\n    parse(parser)\n    print(json.dumps(main(parser.parse_args(ARGUMENTS))))"


def program_of(start: str) -> str:
    return f"{textwrap.dedent(TRAINING + ARGUED)}\n{start}".replace("ARGUMENTS", "")


@pytest.mark.parametrize("begun", [f'if __name__ == "__main__":\n    {RUN}\n', ""])
@pytest.mark.parametrize("training", [[], ["--do_train"], ["--do_train", "--chunks=2"]])
def test_an_evaluation_behind_a_training_that_several_calls_may_do(
    begun: str, training: list[str], tmp_path: Path
) -> None:
    """Which of two branches trains makes no difference, and a run that trains in neither was in float32; also where `main` is
    called from out of sight."""
    text = check_files({"main.py": program_of(begun)}, device="cpu")["main.py"]
    assert "enabled=args.do_train and args.fp16)" in text[text.index("def evaluate") :]
    ran = RUN.replace("ARGUMENTS", str(["--fp16", *training])).replace("\n    ", "\n")
    text = text.partition('if __name__ == "__main__":')[0] + ran
    assert run_files(tmp_path, {"main.py": text}, "main.py") == ["torch.float16" if training else "torch.float32"]


def test_a_training_in_one_branch_alone_is_asked_for_whole() -> None:
    """What is asked besides is an option of no program: the switch stays, and the runs without a training are told of."""
    program = program_of("").replace(
        "        else:\n            train(args, model, loader)\n", "        else:\n            print(args.chunks)\n"
    )
    result = rewrite_files({"main.py": program}, device="cpu")["main.py"]
    text = result.after or ""
    assert "enabled=args.fp16)" in text[text.index("def evaluate") :]
    told = [f.message for f in result.findings if f.code == "AMP531"]
    assert len(told) == 1
    assert "where Apex had not been set up for it before" in told[0]
