"""Flickr30K: sizes, splits and files (docs/protocol.md, Datasets and splits)."""

from ncl_bench.data.captions import ScanLayout
from ncl_bench.data.spec import KnownFile, Origin
from ncl_bench.noise.files import files_shared_by

VOCABULARY = KnownFile(
    "f30k_precomp_vocab.json", "ece46633", where="folder vocab/ of https://github.com/Paranioar/SGRAF"
)

ORIGIN = Origin(
    summary=(
        "Photographs of everyday scenes from Flickr, in Karpathy's split. Each has five English captions by "
        "crowd workers and 36 region features of a bottom-up attention detector, as SCAN published them."
    ),
    homepage="https://github.com/kuanghuei/SCAN",
    obtain=(
        "SCAN features and captions on Kaggle: https://www.kaggle.com/datasets/kuanghueilee/scan-features",
        "or the archive of NCR, which later papers use: https://ncr-paper.cdn.bcebos.com/data/NCR-data.tar",
        f"vocabulary {VOCABULARY.name} (8,481 words, sha256 begins {VOCABULARY.sha256}): {VOCABULARY.where}",
    ),
    folders=("f30k_precomp",),
    files=("{split}_ims.npy", "{split}_caps.txt", "{split}_ids.txt"),
    licence="Flickr terms of use",
    licence_urls=("https://www.flickr.com/help/terms",),
    published="2018",
    terms=(
        "Images and captions may be used for non-commercial research and education only. The images stay "
        "under the Flickr terms of use and their owners' rights."
    ),
    upload_reason=(
        "the Flickr terms allow non-commercial research and education, but not sharing the captions or "
        "features made from the images"
    ),
    citation="""@article{young2014image,
  title   = {From image descriptions to visual denotations: New similarity metrics for semantic inference
             over event descriptions},
  author  = {Young, Peter and Lai, Alice and Hodosh, Micah and Hockenmaier, Julia},
  journal = {Transactions of the Association for Computational Linguistics},
  year    = {2014}
}
@inproceedings{lee2018stacked,
  title     = {Stacked Cross Attention for Image-Text Matching},
  author    = {Lee, Kuang-Huei and Chen, Xi and Hua, Gang and Hu, Houdong and He, Xiaodong},
  booktitle = {European Conference on Computer Vision},
  year      = {2018}
}""",
    vocabulary=VOCABULARY,
)

NOISE_FILES = (
    *files_shared_by(
        "BiCro and PC2",
        "caption",
        {
            "f30k_precomp_0.2.npy": (
                0.2,
                96,
                "4d367b559264595097fff46cf1314e54e4f262e0139ffbf77a70e32746c13ee7",
            ),
            "f30k_precomp_0.4.npy": (
                0.4,
                96,
                "8152f92aa51c5afc86bdaae64d228d975d994bdcf0724b645ed3c69969a4ddc0",
            ),
            "f30k_precomp_0.5.npy": (
                0.5,
                34,
                "9db257937b57de99f1522092ca419f730e2a804ab9154671bf32d28c3be1db19",
            ),
            "f30k_precomp_0.6.npy": (
                0.6,
                96,
                "bcf16a227419634d3cb3672c83b243c6fce07cd9fc0fc8fc406ebede158b05e2",
            ),
            "f30k_precomp_0.2.np.npy": (
                0.2,
                0,
                "dac69ddddd705261fa8712e12b0a1e574f1d041475687484779c70da10f4fd93",
            ),
        },
    ),
    *files_shared_by(
        "RCL and L2RM",
        "image",
        {
            "the flickr30k 0.2 permutation": (0.2, None, "57bbe16579cb1d5a"),
            "the flickr30k 0.4 permutation": (0.4, None, "de930360e0960173"),
            "the flickr30k 0.5 permutation": (0.5, None, "3f2d2e147e9e77f9"),
            "the flickr30k 0.6 permutation": (0.6, None, "8f66dbdcb16bec68"),
            "the flickr30k 0.8 permutation": (0.8, None, "2d7c78a417168384"),
        },
    ),
)

SPEC = ScanLayout(
    name="flickr30k",
    title="Flickr30K",
    images={"train": 29_000, "dev": 1_014, "test": 1_000},
    captions_per_image=5,
    n_regions=36,
    feature_dim=2048,
    protocols=("1k",),
    origin=ORIGIN,
    noise_files=NOISE_FILES,
)
