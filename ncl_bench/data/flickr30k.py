"""Flickr30K: sizes, splits and files (protocol.md, Datasets and splits)."""

from ncl_bench.data.captions import ScanLayout
from ncl_bench.data.spec import KnownFile, Origin

VOCABULARY = KnownFile(
    "f30k_precomp_vocab.json", "ece46633", where="folder vocab/ of https://github.com/Paranioar/SGRAF"
)

ORIGIN = Origin(
    summary=(
        "Photographs of everyday scenes from Flickr, each with five English captions by crowd workers, in "
        "Karpathy's split; every image as 36 region features of a bottom-up attention detector, as SCAN "
        "published them."
    ),
    homepage="https://github.com/kuanghuei/SCAN",
    obtain=(
        "SCAN features and captions on Kaggle: https://www.kaggle.com/datasets/kuanghueilee/scan-features",
        "or the archive of NCR, which later papers use: https://ncr-paper.cdn.bcebos.com/data/NCR-data.tar",
        f"vocabulary {VOCABULARY.name} (8,481 words, sha256 begins {VOCABULARY.sha256}): {VOCABULARY.where}",
    ),
    folders=("f30k_precomp",),
    prefixes={"train": "train", "dev": "dev", "test": "test"},
    files=("{split}_ims.npy", "{split}_caps.txt", "{split}_ids.txt"),
    extra_files=(),
    dtypes=("float32",),
    ids_span_splits=True,
    licence="Flickr terms of use",
    licence_id="other",
    terms=(
        "Images and captions may be used for non-commercial research and education only; the images stay "
        "under the Flickr terms of use and their owners' rights."
    ),
    noise=(
        "The pairs are clean; the benchmark corrupts train, and only train, by moving images between "
        "captions or between whole groups of captions."
    ),
    upload=(),
    upload_reason=(
        "the Flickr terms allow non-commercial research and education but no passing on, neither of "
        "captions nor of features made from the images"
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

SPEC = ScanLayout(
    name="flickr30k",
    title="Flickr30K",
    images={"train": 29_000, "dev": 1_014, "test": 1_000},
    captions_per_image=5,
    n_regions=36,
    feature_dim=2048,
    noise="synthetic",
    protocols=("1k",),
    languages=("en",),
    tokenizers={"en": "word"},
    origin=ORIGIN,
)
