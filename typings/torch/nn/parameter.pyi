from typing import Any

from torch.nn import Parameter as Parameter

def __getattr__(name: str) -> Any: ...
