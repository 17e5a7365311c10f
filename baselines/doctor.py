"""What `ncl-bench doctor` says about CUDA devices; torch is imported when it asks."""

from collections.abc import Iterator
from importlib.util import find_spec

from ncl_bench.cli.doctor import Finding


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
        said = f"{device.name}, {device.total_memory / 2**30:.0f} GiB"
        yield Finding("device", f"cuda:{index}", "ok", said)


def gpu_check(*, profiling: bool) -> Iterator[str]:
    """Train every backbone on the GPU for some steps, or profile one, as Markdown."""
    from baselines.training.gpu_check import gpu_report

    return gpu_report(profiling=profiling)
