"""A mapping of all options of a command line has what that declares in every run (AMP131)."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite_files

TRAIN = """
    import argparse
    import torch
    from absl import flags
    import settings
    try:
        from apex import amp
        found = True
    except ImportError:
        found = False

    DECLARED

    def set_up(conf, model, optim):
        if found and conf["half"]:
            model, optim = amp.initialize(model, optim, opt_level=conf["level"])
        return model, optim

    def main(count):
        conf = CONF
        model = torch.nn.Linear(2, 1).cuda()
        optim = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optim = set_up(conf, model, optim)
        for x in range(count):
            loss = model(torch.randn(2, 2).cuda()).sum()
            optim.zero_grad()
            if found and conf["half"]:
                with amp.scale_loss(loss, optim) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            optim.step()

    main(3)
    """
SETTINGS = """
    import yaml

    def of_flags(flags):
        return {name: flags[name].value for name in flags}

    def of_args(args):
        return {k: v for k, v in vars(args).items()}

    def some(args):
        return {k: v for k, v in vars(args).items() if v}

    def read(path):
        return yaml.safe_load(open(path))
    """
ARGUMENTS = """parser = argparse.ArgumentParser()
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--level", default="O1")"""
FLAGS = """flags.DEFINE_bool("half", True, "")
    flags.DEFINE_string("level", "O1", "")
    FLAGS = flags.FLAGS"""


@pytest.mark.parametrize(
    ("declared", "conf", "told"),
    [
        (ARGUMENTS, "vars(parser.parse_args())", []),
        (ARGUMENTS, "parser.parse_args().__dict__", []),
        (ARGUMENTS, "dict(vars(parser.parse_args()))", []),
        (ARGUMENTS, "settings.of_args(parser.parse_args())", []),
        (FLAGS, "settings.of_flags(FLAGS)", []),
        (FLAGS, "flags.FLAGS.flag_values_dict()", []),
        (ARGUMENTS.replace('"--level"', '"--kind"'), "vars(parser.parse_args())", ["level"]),
        (FLAGS.replace('"level"', '"kind"'), "settings.of_flags(FLAGS)", ["level"]),
        (ARGUMENTS, "settings.some(parser.parse_args())", ["half", "level"]),
        (ARGUMENTS, "settings.read('conf.yaml')", ["half", "level"]),
    ],
)
def test_what_the_command_line_declares_is_there(declared: str, conf: str, told: list[str]) -> None:
    texts = {"train.py": TRAIN.replace("DECLARED", declared).replace("CONF", conf), "settings.py": SETTINGS}
    result = rewrite_files(texts)["train.py"]
    assert "GradScaler" in (result.after or "")
    found = [f.message for f in result.findings if f.code == "AMP131"]
    assert found == [
        f"conf['{name}'] was read only where Apex was installed, and is read in every run now: one whose settings have no such "
        "entry stops here"
        for name in told
    ]


def test_of_several_scripts_each_has_its_own() -> None:
    other = """
        import settings
        from absl import flags

        flags.DEFINE_integer("size", 1, "")
        print(settings.of_flags(flags.FLAGS)["size"])
        """
    train = TRAIN.replace("DECLARED", FLAGS).replace("CONF", "settings.of_flags(FLAGS)")
    results = rewrite_files({"train.py": train, "settings.py": SETTINGS, "other.py": other})
    assert "GradScaler" in (results["train.py"].after or "")
    assert not [f for f in results["train.py"].findings if f.code == "AMP131"]
