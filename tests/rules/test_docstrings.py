"""A new parameter is told of where a docstring tells of the others, in its manner; a docstring that lists none stays."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.rules.helpers import rewrite

PROGRAM = '''
    import torch
    from apex import amp

    def step(model, optimizer, x, y):
        {docstring}
        loss = torch.nn.functional.cross_entropy(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()

    def evaluate(model, loader):
        """Count.

        Args:
            model (nn.Module): the network
            loader: the batches
        """
        with torch.no_grad():
            return sum((model(x).argmax(1) == y).sum().item() for x, y in loader)

    def main(loader, fp16):
        model = torch.nn.Linear(2, 2).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model, optimizer = amp.initialize(model, optimizer, enabled=fp16)
        for x, y in loader:
            optimizer.zero_grad()
            step(model, optimizer, x, y)
        return evaluate(model, loader)
'''
MANNERS = {
    "Google": (
        """
        One step.

        Args:
            model (nn.Module): the network
            optimizer (Optimizer): what steps it,
                each time
            x (Tensor): the inputs

        Returns: nothing.
        """,
        "            scaler (torch.amp.GradScaler): the loss scaler, disabled without mixed precision",
        "                each time",
    ),
    "Sphinx": (
        """
        One step.

        :param model: the network
        :type model: nn.Module
        :param optimizer: what steps it
        :type optimizer: Optimizer
        :return: nothing
        """,
        "        :param scaler: the torch.amp.GradScaler, disabled without mixed precision",
        "        :type optimizer: Optimizer",
    ),
    "NumPy": (
        """
        One step.

        Parameters
        ----------
        optimizer : Optimizer
            what steps it
        x : Tensor
            the inputs
        """,
        "        scaler : torch.amp.GradScaler\n            the loss scaler, disabled without mixed precision",
        "            what steps it",
    ),
}


def program(docstring: str) -> str:
    return dedent(PROGRAM.replace("{docstring}", f'"""{docstring.strip()}\n        """'))


@pytest.mark.parametrize("manner", MANNERS)
def test_the_scaler_stands_below_the_parameter_it_follows(manner: str) -> None:
    docstring, entry, above = MANNERS[manner]
    text = rewrite(program(docstring)).after or ""
    assert "def step(model, optimizer, scaler, x, y):" in text
    assert "".join(f"{line[4:]}\n" for line in f"{above}\n{entry}".split("\n")) in text


def test_the_switch_stands_at_the_end() -> None:
    text = rewrite(program("One step.")).after or ""
    assert "        loader: the batches\n        use_amp (bool, optional): whether to run under autocast\n    " in text


def test_a_docstring_that_lists_nothing_stays() -> None:
    text = rewrite(program("One step: x and the model are what they are.")).after or ""
    assert '    """One step: x and the model are what they are.\n    """\n' in text


def test_what_takes_the_place_of_amp_takes_its_entry() -> None:
    text = (
        rewrite(
            '''
        import torch
        from apex import amp

        def save(model, optimizer, amp, path):
            """Save.

            Args:
                model: the network
                amp: the module of Apex
                path: where
            """
            torch.save({"model": model.state_dict(), "amp": amp.state_dict()}, path)

        model = torch.nn.Linear(2, 2).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model, optimizer = amp.initialize(model, optimizer)
        for x, y in batches:
            optimizer.zero_grad()
            with amp.scale_loss(torch.nn.functional.cross_entropy(model(x), y), optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        save(model, optimizer, amp, "last.pt")
        '''
        ).after
        or ""
    )
    assert "def save(model, optimizer, scaler, path):" in text
    assert "        scaler: the torch.amp.GradScaler\n        path: where\n" in text
    assert "the module of Apex" not in text
