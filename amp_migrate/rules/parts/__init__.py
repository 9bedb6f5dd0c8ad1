"""Parts of Apex other than amp: parallel, syncbn, optimizers, normalization, and their imports."""
