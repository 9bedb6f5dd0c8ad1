"""What is known of a program's command line: options, sub-commands, and the arguments of two of the drills."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from amp_migrate.verify.case import Program
from amp_migrate.verify.commandline import options, parsers
from amp_migrate.verify.drills.arguments import Known, evaluating, known, shown, switched_off


def tree(code: str) -> ast.Module:
    return ast.parse(dedent(code))


def found(code: str) -> Known:
    trees = [tree(code)]
    return Known(tuple(parsers.every(trees)), tuple(parsers.commands(trees)))


def test_values_of_a_command_line() -> None:
    code = """
    parser.add_argument("data")
    parser.add_argument("-b", "--batch-size", type=int, default=8)
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--no-eval", dest="evaluate", action="store_false")
    parser.add_argument("--betas", nargs="+", type=float)
    parser.add_argument("--amp", type=str2bool, default=False)
    parser.add_argument("--rect", nargs="?", const=True, default=False)
    parser.add_argument("--lr", default=compute())
    parser.add_argument("--fast", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--cache", dest="cache", action="store_true")
    parser.add_argument("--no-cache", dest="cache", action="store_false")
    parser.set_defaults(cache=True)
    """
    known = parsers.find([tree(code)])
    argv = ["set", "-b", "16", "--fp16", "--no-eval", "--rect", "--betas", "0.9", "0.99", "--amp=true", "--no-fast"]
    values = options.parsed([*argv, "--no-cache"], known)
    assert values["data"] == "set"
    assert (values["batch_size"], values["fp16"], values["evaluate"], values["amp"]) == (16, True, False, True)
    assert values["betas"] is options.UNKNOWN
    assert values["lr"] is options.UNKNOWN
    assert (values["fast"], values["cache"], values["rect"]) == (False, False, True)
    assert options.parsed(argv, known)["cache"] is True
    assert [o.name for o in options.missing(["--fp16"], known)] == ["data"]
    assert [o.name for o in options.missing(["-b", "16"], known)] == ["data"]
    assert not options.missing(argv, known)
    assert options.without(argv, known["betas"]) == argv[:6] + argv[9:]
    assert options.without(argv, known["fast"]) == argv[:-1]


SUB_COMMANDS = {
    "names, groups and a parent": """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--seed", type=int)
        kinds = parser.add_subparsers()
        p = kinds.add_parser("train")
        p.add_argument("data")
        group = p.add_argument_group("precision")
        group.add_argument("--fp16", action="store_true")
        p = kinds.add_parser("evaluate")
        p.add_argument("data")
        p.add_argument("--checkpoint", required=True)
        """,
    "a function each": """
        def evaluation(kinds):
            parser = kinds.add_parser("evaluate")
            parser.add_argument("data")
            parser.add_argument("--checkpoint", required=True)
        def training(parser):
            add = parser.add_argument
            parser.add_argument("data")
            parser.add_argument("--fp16", action="store_true")
        def main(parser):
            parser.add_argument("--seed", type=int)
            kinds = parser.add_subparsers()
            one = kinds.add_parser("train")
            training(one)
            evaluation(kinds)
        """,
    "click": """
        import click
        @click.group()
        @click.option("--seed", type=int)
        def cli(seed): ...
        @cli.command()
        @click.argument("data")
        @click.option("--fp16", is_flag=True)
        def train(data, fp16): ...
        @click.command(name="evaluate")
        @click.argument("data")
        @click.option("--checkpoint", required=True)
        def evaluation(data, checkpoint): ...
        cli.add_command(evaluation)
        """,
}


@pytest.mark.parametrize("code", SUB_COMMANDS.values(), ids=list(SUB_COMMANDS))
def test_sub_commands_bring_their_own_options(code: str) -> None:
    trees = [tree(code)]
    assert sorted(parsers.commands(trees)) == ["evaluate", "train"]
    assert set(parsers.find(trees, "train")) == {"seed", "data", "fp16"}
    assert set(parsers.find(trees, "evaluate")) == {"seed", "data", "checkpoint"}
    argv = ["--seed", "1", "train", "set", "--fp16"]
    values = options.parsed(argv, parsers.find(trees, "train"))
    assert (values["data"], values["fp16"], values["seed"]) == ("set", True, 1)
    assert switched_off(argv, found(code)) == ("--seed", "1", "train", "set")
    assert evaluating(argv, found(code)) == ("--seed", "1", "evaluate", "set", "--checkpoint", "{checkpoint}")
    assert evaluating(["evaluate", "set", "--checkpoint", "x"], found(code)) is None


@pytest.mark.parametrize(
    ("argv", "off"),
    [
        (["--fp16", "--lr", "1"], ["--lr", "1"]),
        (["--amp", "True", "x"], ["--amp", "False", "x"]),
        (["--opt-level", "O2"], ["--opt-level", "O0"]),
        (["--opt_level=O1"], ["--opt_level=O0"]),
        (["--use_amp=1"], ["--use_amp=0"]),
        (["trainer.fp16=true", "n=3"], ["trainer.fp16=false", "n=3"]),
        (["--lr", "1"], None),
    ],
)
def test_switches_are_found_among_the_arguments(argv: list[str], off: list[str] | None) -> None:
    assert switched_off(argv, Known()) == (None if off is None else tuple(off))


@pytest.mark.parametrize(
    ("option", "argv", "off"),
    [
        ("p.add_argument('--no-fp16', action='store_true')", "a", "a --no-fp16"),
        ("p.add_argument('--no-amp', dest='amp', action='store_false')", "a", "a --no-amp"),
        ("p.add_argument('--level', default='O1')", "a", "a --level O0"),
        ("p.add_argument('--amp', action=BooleanOptionalAction, default=True)", "a", "a --no-amp"),
        ("p.add_argument('--amp', action=BooleanOptionalAction, default=True)", "--amp a", "--no-amp a"),
        ("p.add_argument('--fp16', type=str2bool, default=True)", "a", "a --fp16 False"),
        ("p.add_argument('--fp16_run', type=bool, default=True)", "a", "a --fp16_run="),
        ("p.add_argument('--fp16', type=bool, default=False)", "--fp16 True a", "--fp16= a"),
        ("p.add_argument('--fp16', type=int, default=1)", "a", "a --fp16 0"),
        ("p.add_argument('--precision', choices=['fp16', 'fp32'], default='fp16')", "a", "a --precision fp32"),
        ("p.add_argument('--precision', choices=[16, 32], type=int)", "--precision=16", "--precision=32"),
        ("@click.option('--amp/--full', default=True)\ndef main(): ...", "a", "a --full"),
        ("@click.option('--dtype', type=click.Choice(['half', 'float']), default='half')\ndef main(): ...", "a", "a --dtype float"),
        ("p.add_argument('fp16')", "a", None),
        ("p.add_argument('--fp16', action='store_true')", "a", None),
        ("p.add_argument('--fp16', type=str2bool, default=False)", "a", None),
    ],
)  # fmt: skip
def test_switches_are_found_among_the_options(option: str, argv: str, off: str | None) -> None:
    told = switched_off(argv.split(), found(option))
    assert told == (None if off is None else tuple(off.split()))


@pytest.mark.parametrize(
    ("option", "argv", "alone"),
    [
        ("p.add_argument('-e', '--evaluate', action='store_true')", "a", "a --evaluate"),
        ("p.add_argument('-e', '--evaluate', action='store_true')", "-e", "-e"),
        ("p.add_argument('--mode', choices=['train', 'test'], default='train')", "--mode train a", "a --mode test"),
        ("p.add_argument('mode', choices=('train', 'eval'))", "train a", "eval a"),
        ("p.add_argument('--split', choices=['val', 'test'])", "a", None),
        ("p.add_argument('--evaluate', type=int)", "a", None),
    ],
)
def test_arguments_that_evaluate_alone(option: str, argv: str, alone: str | None) -> None:
    told = evaluating(argv.split(), found(option))
    assert told == (None if alone is None else tuple(alone.split()))


def test_options_of_the_files_behind_a_script(tmp_path: Path) -> None:
    files = {
        "tools/train.py": "from settings import parser\n",
        "tools/settings.py": "parser.add_argument('--no-apex', action='store_true')\n"
        "if __name__ == '__main__':\n    other.add_argument('--test-only', action='store_true')\n",
        "tools/other.py": "parser.add_argument('--evaluate', action='store_true')\n",
    }
    (tmp_path / "tools").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    script = tmp_path / "tools" / "train.py"
    for program in (Program(script, tmp_path), Program(script, tmp_path, tmp_path)):
        told = known(program)
        assert switched_off([], told) == ("--no-apex",)
        assert evaluating([], told) is None
    assert known(Program(tmp_path / "nowhere.py", tmp_path)) == Known()


def test_long_arguments_are_shown_by_what_differs() -> None:
    given = ["train", "--corpus", "a-long-name-of-a-corpus", "--words", "another-long-name", "--fp16", "--level", "O1"]
    assert shown(given, given[:-2]) == "`--level O1` added"
    assert shown([*given, "--evaluate"], given) == "`--evaluate` added"
    assert shown([word for word in given if word != "--fp16"], given) == "all arguments but `--fp16`"
    assert shown([*given[:-1], "O0"], given) == "`O0` in place of `O1`"
    assert shown(["--evaluate"], ["a"]) == "`--evaluate`"
    assert shown([], ["a"]) == "no arguments"


def test_the_short_names_of_configargparse() -> None:
    code = """
    import configargparse
    p = configargparse.ArgumentParser()
    group = p.add_argument_group(title="AMP").add_mutually_exclusive_group()
    group.add("--apex_amp", action="store_true", help="Apex")
    p.add_arg("-d", "--data-dir", type=str, required=True)
    seen.add("--apex_amp_too")
    seen.add("data", help="no flag")
    """
    known = parsers.find([tree(code)])
    assert sorted(known) == ["apex_amp", "data_dir"]
    assert known["apex_amp"].action == "store_true"
    assert [option.name for option in options.missing([], known)] == ["data_dir"]
