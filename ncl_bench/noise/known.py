"""The noise files that papers share, known by their hashes, so that none of them has to be there (protocol.md).

A seed draws the caption-unit files bit for bit. No known seed draws the image-unit files: whoever wants the noise of
DECL, RCL or L2RM has to use their file, and results with noise drawn here are not comparable with theirs.
"""

from dataclasses import dataclass

from numpy import int64
from numpy.typing import NDArray

from ncl_bench.noise.draw import NoiseUnit, noise_sha256

_CAPTION_FILES = """
f30k_precomp_0.2.npy     0.2  96  4d367b559264595097fff46cf1314e54e4f262e0139ffbf77a70e32746c13ee7
f30k_precomp_0.4.npy     0.4  96  8152f92aa51c5afc86bdaae64d228d975d994bdcf0724b645ed3c69969a4ddc0
f30k_precomp_0.5.npy     0.5  34  9db257937b57de99f1522092ca419f730e2a804ab9154671bf32d28c3be1db19
f30k_precomp_0.6.npy     0.6  96  bcf16a227419634d3cb3672c83b243c6fce07cd9fc0fc8fc406ebede158b05e2
f30k_precomp_0.2.np.npy  0.2  0   dac69ddddd705261fa8712e12b0a1e574f1d041475687484779c70da10f4fd93
coco_precomp_0.2.npy     0.2  16  a0ca6052556963d637c597ada5837a5e899c70ea63b3ed540dc3ce4a0cac11cc
coco_precomp_0.4.npy     0.4  96  9f674ad089f7d375d8aad51638b6621b26d321f45944e745662d5afc10091870
coco_precomp_0.5.npy     0.5  43  ba9658be353a59e3cef88ae3c07abec633ccf1af6d083233ad4839075e290149
coco_precomp_0.6.npy     0.6  96  7be1266823f938e4165bd6dd5f1ced12124a37e78254f63f54c78eafe99071bb
"""
_IMAGE_FILES = """
flickr30k  0.2  57bbe16579cb1d5a
flickr30k  0.4  de930360e0960173
flickr30k  0.5  3f2d2e147e9e77f9
flickr30k  0.6  8f66dbdcb16bec68
flickr30k  0.8  2d7c78a417168384
coco       0.2  0b1a905728231970
coco       0.4  2a6c9f0df8be6869
coco       0.5  7948491d3cd16aa3
coco       0.6  e6a6aca04c7feed7
coco       0.8  5c7f830f87069aef
"""


@dataclass(frozen=True)
class KnownNoise:
    """A noise file that a paper's repository shares.

    Attributes:
        title: which file of whom.
        dataset: its name.
        unit: ``"caption"`` (BiCro, PC2) or ``"image"`` (RCL; L2RM repeats each entry five times).
        ratio: nominal, in [0, 1).
        seed: that draws the same array, or None where no seed is known.
        sha256: hash (hex), or its first 16 digits, of the little-endian int64 array; for the image unit, of
            the permutation of images.
    """

    title: str
    dataset: str
    unit: NoiseUnit
    ratio: float
    seed: int | None
    sha256: str


def _caption_file(name: str, ratio: str, seed: str, sha256: str) -> KnownNoise:
    dataset = "coco" if name.startswith("coco") else "flickr30k"
    return KnownNoise(f"{name} of BiCro and PC2", dataset, "caption", float(ratio), int(seed), sha256)


def _image_file(dataset: str, ratio: str, sha256: str) -> KnownNoise:
    title = f"the {dataset} {ratio} permutation of RCL and L2RM"
    return KnownNoise(title, dataset, "image", float(ratio), None, sha256)


KNOWN_NOISE = (
    *(_caption_file(*line.split()) for line in _CAPTION_FILES.strip().splitlines()),
    *(_image_file(*line.split()) for line in _IMAGE_FILES.strip().splitlines()),
)


def known_noise_name(sha256: str) -> str | None:
    """Name of the shared noise file with this hash, or None: ``f30k_precomp_0.4.npy of BiCro and PC2``.

    Args:
        sha256: hash (hex) of the little-endian int64 array: the image of every caption for the caption unit, the
            permutation of images for the image unit. The image files are known by the hash of their permutation
            alone, so the hash of an image-unit ``caption_to_image`` is never found: its record says
            ``published`` instead.
    """
    return next((file.title for file in KNOWN_NOISE if sha256.startswith(file.sha256)), None)


def find_known_noise(units: NDArray[int64]) -> KnownNoise | None:
    """The shared noise file that holds this array, or None.

    Args:
        units: int64, the image of every caption, or of every image where whole images were moved.
    """
    name = known_noise_name(noise_sha256(units))
    return next((file for file in KNOWN_NOISE if file.title == name), None)
