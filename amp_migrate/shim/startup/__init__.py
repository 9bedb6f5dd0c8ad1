"""The folder put on PYTHONPATH of child processes; `sitecustomize` in it prepares each interpreter as it starts."""
