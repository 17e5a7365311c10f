"""torchvision beside a build of torch that it was not compiled for, such as torch for CPUs and torchvision from PyPI.

Its compiled operators do not load then, and ``import torchvision`` fails as it registers shapes for one of them. timm,
OpenCLIP and sentence-transformers call none of them: that they are declared is enough.
"""

import sys
from importlib import import_module
from typing import Any

import torch

_declared: list[torch.library.Library] = []  # a library that is freed takes its operators with it


def import_beside(package: str) -> Any:
    """Import a package that imports torchvision, whatever torch that was built for."""
    try:
        import_module("torchvision")
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library: Any = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _declared.append(library)
        import_module("torchvision")
    return import_module(package)
