"""torchvision beside a torch build that it was not compiled for, such as torch for CPUs alone.

Its compiled operators do not load then, and ``import torchvision`` fails since it registers shapes for one of them.
Nothing here calls these operators: that they are declared is enough to import timm and OpenCLIP.
"""

import sys
from importlib import import_module

import torch

_declared: list[torch.library.Library] = []  # a library that is freed takes its operators with it


def define_missing_operators() -> None:
    """Make ``import torchvision`` work; does nothing where it does already."""
    try:
        import_module("torchvision")
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _declared.append(library)
        import_module("torchvision")
