"""A switch as autocast takes it: a real bool."""

from __future__ import annotations

from pathlib import Path

import pytest

from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.values.bools import as_bool


def written_in(program: str, text: str, function: str = "") -> str:
    """How a program would say a condition, at its top level or in one of its functions."""
    module = Module(Path("train.py"), program)
    scopes = {scope.name: scope for scope in module.scopes.values()}
    return as_bool(Project([module]), scopes[function], text)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ('len(level) and level != "O0"', 'bool(len(level) and level != "O0")'),
        ('config.get("fp16")', 'bool(config.get("fp16"))'),
        ('config.get("fp16", False)', 'bool(config.get("fp16", False))'),
        ('getattr(args, "fp16", False)', 'getattr(args, "fp16", False)'),
        ('getattr(args, "fp16", None)', 'bool(getattr(args, "fp16", None))'),
        ('config["train"]["fp16"]', 'bool(config["train"]["fp16"])'),
        ("torch.cuda.is_available()", "torch.cuda.is_available()"),
        ('hasattr(args, "fp16")', 'hasattr(args, "fp16")'),
        ('config.get("fp16", 0)', 'bool(config.get("fp16", 0))'),
        ('os.getenv("FP16")', 'bool(os.getenv("FP16"))'),
        ("on()", "bool(on())"),
        ("args.fp16", "bool(args.fp16)"),
        ('args.amp and args.amp != "O0"', 'bool(args.amp and args.amp != "O0")'),  # it is text
        ('args.fp16 and args.level != "O0"', 'bool(args.fp16 and args.level != "O0")'),
        ("n and n != 0", "bool(n and n != 0)"),
        ("(a or b)", "bool(a or b)"),
        ("(a or b) and (c or d)", "bool((a or b) and (c or d))"),
        ("(a, )", "bool((a, ))"),
    ],
)
def test_what_may_be_no_bool_is_made_one(text: str, written: str) -> None:
    assert written_in("", text) == written


OPTIONS = """import argparse

parser = argparse.ArgumentParser()
{}
args = parser.parse_args()
"""


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ('parser.add_argument("--amp", type=str, default="")', True),
        ('arg = parser.add_argument\narg("--amp", type=str, default="")', True),
        ('arg = parser.add_argument\narg("--amp", action="store_true")', False),
        ('arg = parser.parse_known_args\narg("--amp", type=str)', True),  # none is known
        ('parser.add_argument("--amp", action="store_true")', False),
        ('parser.add_argument("--amp", action="store_true", default=None)', True),
        ('parser.add_argument("--amp", action="count")', True),
        ('parser.add_argument("--amp", action="store_true")\nparser.set_defaults(amp=1)', True),
        ('parser.add_argument("--amp", action="store_true")\nparser.set_defaults(amp=False)', False),
        ('parser.add_argument("--amp", type=bool, default=False)', False),
        ('parser.add_argument("--amp", type=bool, default=0)', True),
        ('parser.add_argument("--amp", type=str2bool, default="no")', False),
        ('parser.add_argument("--amp", type=str2bool)', True),
        ('parser.add_argument("--amp", action=argparse.BooleanOptionalAction)', True),
        ('parser.add_argument("--amp", action=argparse.BooleanOptionalAction, default=True)', False),
    ],
)
def test_an_option_is_one_under_whatever_name_and_in_whatever_file_it_is_declared(option: str, text: bool) -> None:
    parser = Module(Path("options.py"), OPTIONS.format(option))
    written = "bool(args.amp)" if text else "args.amp"
    train = Module(Path("train.py"), "")
    assert as_bool(Project([parser]), parser.root, "args.amp") == written
    assert as_bool(Project([train, parser]), train.root, "args.amp") == written


@pytest.mark.parametrize(
    ("program", "text", "sure"),
    [
        ("config = yaml.safe_load(open('c.yaml'))", 'config["fp16"]', False),
        ("config = {'fp16': True}", 'config["fp16"]', True),
        ("config = {'fp16': True}\nconfig['fp16'] = args.amp", 'config["fp16"]', False),
        ("config = {'fp16': True}\nfill(config)", 'config["fp16"]', True),
        ("config = dict(fp16=1)", 'config["fp16"]', False),
        ("config = dict(fp16=1)", 'config.get("fp16", False)', False),
        ("use = config['fp16']", "use", False),
        ("use = torch.cuda.is_available()", "use", True),
        ("use, level = True, 'O1'", "use", True),
        ("use, level = True, 'O1'", "level", False),
        ("use, level = settings()", "use", False),
        ("def asked() -> bool: ...\nuse = asked()", "use", True),
        ("def asked(): ...\nuse = asked()", "use", False),
        ("_C.AMP = CN()\n_C.AMP.ENABLED = False", "cfg.AMP.ENABLED", True),
        ("_C.AMP.ENABLED = 0", "cfg.AMP.ENABLED", False),
        ("class Config:\n    fp16: bool = False", "config.fp16", True),
        ("class Config:\n    fp16: int = 0", "config.fp16", False),
        ("flags.DEFINE_bool('fp16', False, '')", "FLAGS.fp16", True),
        ("flags.DEFINE_string('fp16', '', '')", "FLAGS.fp16", False),
        ("use: bool = load()", "use", True),
        ("for use in (0, 1): ...", "use", False),
        ("use = use if use else False", "use", True),
        (
            "class T:\n    def __init__(self, args):\n        self.fp16 = args.fp16",
            "args.fp16",
            False,
        ),  # all that is seen
        ("args = SimpleNamespace(fp16=True)", "args.fp16", True),
        ("args = SimpleNamespace(fp16=1)", "args.fp16", False),
        ("import os", 'os.environ.get("fp16", False)', False),  # text, where it is set
    ],
)
def test_a_switch_is_a_bool_where_the_program_gives_it_nothing_else(program: str, text: str, sure: bool) -> None:
    assert written_in(program, text) == (text if sure else f"bool({text})")


@pytest.mark.parametrize(
    ("signature", "calls", "sure"),
    [
        ("fp16", "", False),
        ("fp16: bool", "", True),
        ("fp16=False", "", True),
        ("fp16=None", "", False),
        ("fp16", "train(True)", True),
        ("fp16", "train(fp16=level == 'O1')", True),
        ("fp16", "train(True)\ntrain(config['fp16'])", False),
        ("fp16=False", "train(args.level)", False),
    ],
)
def test_a_parameter_is_a_bool_where_its_calls_and_its_default_are(signature: str, calls: str, sure: bool) -> None:
    program = f"def train({signature}): ...\n{calls}\n"
    assert written_in(program, "fp16", "train") == ("fp16" if sure else "bool(fp16)")


def test_a_flag_of_click_and_a_setting_of_a_module_are_bools() -> None:
    flag = '@click.option("--mixed-precision/--full", is_flag=True)\ndef main(mixed_precision): ...\n'
    assert written_in(flag, "mixed_precision", "main") == "mixed_precision"
    settings = Module(Path("settings.py"), "FP16 = True\nLEVEL = 1\n")
    train = Module(Path("train.py"), "import settings\nfrom settings import FP16\n")
    project = Project([settings, train])
    assert as_bool(project, train.root, "settings.FP16") == "settings.FP16"
    assert as_bool(project, train.root, "FP16") == "FP16"
    assert as_bool(project, train.root, "settings.LEVEL") == "bool(settings.LEVEL)"
