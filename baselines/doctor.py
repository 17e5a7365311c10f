"""What `ncl-bench doctor` says about CUDA devices; torch is imported when it asks."""

from collections.abc import Iterator
from importlib.util import find_spec

from ncl_bench.cli.doctor import Finding
from ncl_bench.extras import require


def cuda_devices() -> Iterator[Finding]:
    """Every CUDA device by name and memory, or why there is none."""
    if find_spec("torch") is None:
        return
    import torch

    if not torch.cuda.is_available():
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
        yield Finding("device", "cuda", "absent", f"no device; torch is {built}")
    for index in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(index)
        said = f"{device.name}, {device.total_memory / 2**30:.0f} GiB{_peaks(device.name)}"
        yield Finding("device", f"cuda:{index}", "ok", said)


def _peaks(device: str) -> str:
    """What the maker publishes of a card that is known; empty for others."""
    from baselines.engine.gpu_check import known_card

    card = known_card(device)
    if card is None:
        return ""
    return f"; at best {card.tf32 / 1e12:g} TFLOP/s in TF32 and {card.bandwidth / 1e12:g} TB/s"


def gpu_check() -> Iterator[str]:
    """Ten steps of every backbone on the GPU, as Markdown.

    Raises:
        NclBenchError: torch is not installed, there is no CUDA device, or a backbone failed.
    """
    require("baselines", "torch", needed_by="doctor --gpu")
    from baselines.engine.gpu_check import gpu_report

    return gpu_report()
