"""The same program in other letters and on other lines comes out the same."""

from __future__ import annotations

import ast

import pytest

from tests.rules.helpers import rewrite

PROGRAM = """
import argparse
import torch
from apex import amp

args = argparse.ArgumentParser().parse_args()
model, optimizer = build()
model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
for x, y in loader:
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_what_is_written_ends_its_lines_as_the_file_does(newline: str) -> None:
    """A parameter and an argument on lines of their own."""
    program = """
from apex import amp


def train(model,
          optimizer,
          loader):
    for x in loader:
        with amp.scale_loss(model(x), optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()


def main():
    model, optimizer = build()
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    train(model,
          optimizer,
          loader)
"""
    plain = rewrite(program).after
    found = rewrite(program.replace("\n", newline).lstrip(newline)).after
    assert plain is not None
    assert "          scaler,\n" in plain
    assert found == plain.replace("\n", newline)


@pytest.mark.parametrize("sign", ["@", "@ ", "@ \\\n  ", "@("])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_decorator_may_stand_apart_from_its_sign(sign: str, newline: str) -> None:
    decorator = f"{sign}torch.no_grad(){')' * sign.count('(')}"
    source = f"{PROGRAM}\n\n{decorator}\ndef validate(model, loader):\n    return [model(x) for x, _ in loader]\n"
    source += "\nvalidate(model, loader)\n"
    plain = rewrite(source.replace(decorator, "@torch.no_grad()")).after
    found = rewrite(source.replace("\n", newline)).after
    assert plain is not None
    assert found is not None
    assert "def validate(model, loader, enabled" in plain or "autocast" in plain.partition("def validate")[2]
    assert ast.dump(ast.parse(found)) == ast.dump(ast.parse(plain))


def test_a_body_behind_the_colon_of_a_long_header_says_nothing_of_indentation() -> None:
    loop = "for epoch in range(\n        3): print(epoch)\n"
    wanted, found = rewrite(loop.replace("\n        ", "") * 4 + PROGRAM), rewrite(loop * 4 + PROGRAM)
    assert wanted.after is not None
    assert found.after is not None
    assert found.after.partition("import")[2] == wanted.after.partition("import")[2]


@pytest.mark.parametrize("odd", ["\x0c", "\u2028", "\x85", "\x1c"])
def test_lines_end_where_python_ends_them(odd: str) -> None:
    comment = f"# one{odd}two\n"
    assert len(comment.splitlines()) > 1
    source = PROGRAM.replace("loss = criterion", f"# kept{odd}too\n    loss = criterion")
    wanted, found = rewrite(comment * 3 + PROGRAM), rewrite(comment * 3 + source)
    assert found.after is not None
    assert f"# kept{odd}too\n" in found.after
    assert [(f.code, f.status) for f in found.findings] == [(f.code, f.status) for f in wanted.findings]


@pytest.mark.parametrize(
    ("plain", "other"),
    [
        ("opt_level=args.level", "opt_level=args\n    .level"),
        ("opt_level=args.level", "opt_level=args  # of the command line\n    .level"),
        ("model, optimizer = amp", "𝐦odel, 𝐨ptimizer = amp"),
        ("amp.initialize(model, optimizer", "amp.initialize(mode𝐥, optimizer"),
        ("opt_level=args.level", "opt_level=args . level"),
        ("optimizer.step()", "o𝐩timizer . step ( )"),
        ("amp.scale_loss(loss, optimizer)", "amp . scale_loss(loss,\n\n optimiz𝐞r)"),
    ],
)
def test_letters_and_lines_of_an_expression_do_not_matter(plain: str, other: str) -> None:
    assert PROGRAM.count(plain) == 1
    wanted, found = rewrite(PROGRAM), rewrite(PROGRAM.replace(plain, other))
    assert wanted.after is not None
    assert found.after is not None
    assert ast.dump(ast.parse(found.after)) == ast.dump(ast.parse(wanted.after))


def test_where_a_model_is_made_is_no_matter_of_lines() -> None:
    program = """
        import torch
        from apex import amp


        def validate(net, loader):
            with torch.no_grad():
                return [net(x) for x in loader]


        model = torch.nn.Linear(3, 3).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        validate(model, loader)
        """
    wanted, found = rewrite(program), rewrite(program.replace("model = torch", "model \\\n            = torch"))
    assert [f.code for f in found.findings] == [f.code for f in wanted.findings]
    assert "AMP531" not in [f.code for f in found.findings]


def test_a_value_that_is_given_a_name_on_the_way_keeps_its_parentheses() -> None:
    load = 'amp.load_state_dict((held := torch.load("last.pt")["amp"]))\n'
    result = rewrite(PROGRAM.replace("for x, y", f"{load}for x, y"))
    assert result.after is not None
    compile(result.after, "train.py", "exec")
    assert '(held := torch.load("last.pt")["amp"])' in result.after


TRAINER = """
import torch
from torch import nn
from apex import amp


class Trainer:
    def __init__(self, fp16=False):
        self.fp16 = fp16
        self.network = None
        self.optimizer = None

    def initialize(self):
        self.network = nn.Linear(4, 1).cuda()
        self.optimizer = torch.optim.SGD(self.network.parameters(), 0.1)
        self._init_amp()

    def _init_amp(self):
        if self.fp16:
            self.network, self.optimizer = amp.initialize(self.network, self.optimizer, opt_level="O1")

    def iteration(self, x):
        self.optimizer.zero_grad()
        loss = self.network(x).sum()
        if not self.fp16:
            loss.backward()
        else:
            with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                scaled_loss.backward()
        self.optimizer.step()


trainer = Trainer(fp16=True)
trainer.initialize()
trainer.iteration(torch.ones(2, 4).cuda())
"""


@pytest.mark.parametrize(
    ("plain", "other"),
    [
        ("def initialize", "def initia𝐥ize"),
        ("def _init_amp", "def _init_a𝐦p"),
        ("def iteration", "def iteratio𝐧"),
        ("class Trainer", "class T𝐫ainer"),
        ("from torch import nn", "from to𝐫ch import nn"),
    ],
)
def test_a_definition_in_other_letters_is_found(plain: str, other: str) -> None:
    assert TRAINER.count(plain) == 1
    wanted, found = rewrite(TRAINER), rewrite(TRAINER.replace(plain, other))
    assert wanted.after is not None
    assert found.after is not None
    assert ast.dump(ast.parse(found.after)) == ast.dump(ast.parse(wanted.after))
