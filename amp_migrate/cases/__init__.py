"""Finds the cases for `amp-migrate verify`: which scripts, called how, together reach what a migration changed.

Reads with `ast` alone. `verify/commandline` knows what parsers accept, `commands` what READMEs and shell scripts call, `scripts` the
entry points and the files behind them, `needs` what the command line must say for a place to be reached, `plan` the
choice, `toml` what is written. What cannot be known is named, never made up.
"""
