"""What a command needs that a plain installation does not bring."""

from __future__ import annotations

import click


def torch_is_there(command: str) -> bool:
    """Whether torch can be imported; where not, what to install is told."""
    from importlib.util import find_spec

    try:
        if find_spec("torch") is not None:
            return True
    except (ImportError, ValueError):
        pass
    click.echo(f"amp-migrate {command}: needs PyTorch; pip install 'amp-migrate[verify]'.", err=True)
    return False
