"""The write side: edits decided on the `ast`, carried out with libcst on the files that change."""
