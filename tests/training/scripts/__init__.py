"""Small training scripts as users write them, by what they train.

A script is a function that takes `compile`, which it calls where a user would call `lampwork.compile`, trains for some
steps and returns what there is to see: losses, numbers, tensors. `SCRIPTS` has them all, by name.
"""

from __future__ import annotations

from tests.training.scripts import generative, language, learning, loops, updates

SCRIPTS = {
    f"{module.__name__.rpartition('.')[2]}-{name}": function
    for module in (generative, language, learning, loops, updates)
    for name, function in vars(module).items()
    if getattr(function, "is_script", False)
}
