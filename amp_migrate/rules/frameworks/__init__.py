"""Settings with which training frameworks choose Apex: one file a framework.

Each rule reads Python calls and dictionaries; `configuration.py` knows the same settings in JSON and YAML files.
"""
