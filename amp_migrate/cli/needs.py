"""What a command needs that a plain installation does not bring."""

from __future__ import annotations

from amp_migrate.cli.printing import echo

# A tool that uvx, pipx or pre-commit runs has an environment of its own, which no `pip install` of the user's reaches.
_BESIDE = " beside amp-migrate, or install 'amp-migrate[verify]'"


def torch_is_there(command: str) -> bool:
    """Whether torch can be imported; where not, what to install is told."""
    return _is_there("torch", f"{command}: needs PyTorch; pip install 'torch>=2.4'{_BESIDE}")


def matplotlib_is_there(command: str) -> bool:
    """The same of matplotlib, which draws the plots of a page."""
    return _is_there("matplotlib", f"{command}: needs matplotlib; pip install 'matplotlib>=3.8'{_BESIDE}")


def _is_there(package: str, told: str) -> bool:
    from importlib.util import find_spec

    try:
        if find_spec(package) is not None:
            return True
    except (ImportError, ValueError):
        pass
    echo(f"amp-migrate {told}.", err=True)
    return False
