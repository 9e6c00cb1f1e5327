"""Translation validation: what each pass makes of real programs is run by its IR's interpreter and compared with the
stage before. `python -m tests.validation` runs it over all that there is to run it on."""
