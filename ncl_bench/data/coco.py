"""MS-COCO: sizes, splits and files (docs/protocol.md, Datasets and splits), and labels with more true matches.

Many captions of the test split also describe other images, but every recall of the protocol counts them as wrong. Two
projects labelled such matches: Crisscrossed Captions (CxC, Parekh et al., EACL 2021) by human ratings, and ECCV Caption
(Chun et al., ECCV 2022) by humans and five models, for 1,261 image and 1,332 caption queries. The package
``eccv_caption`` holds both.
"""

import json
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

import numpy as np

from ncl_bench.data.captions import ScanLayout
from ncl_bench.data.spec import KnownFile, Labels, LabelSource, Matches, Origin
from ncl_bench.errors import ScoresError
from ncl_bench.noise.files import files_shared_by
from ncl_bench.npy import Int64Array

LABELS_PACKAGE = "eccv_caption"

VOCABULARY = KnownFile(
    "coco_precomp_vocab.json", "91b208d4", where="folder vocab/ of https://github.com/Paranioar/SGRAF"
)

ORIGIN = Origin(
    summary=(
        "Photographs of common objects in context, in Karpathy's split. Each has five English captions by "
        "crowd workers and 36 region features of a bottom-up attention detector, as SCAN published them."
    ),
    homepage="https://cocodataset.org",
    obtain=(
        "SCAN features and captions on Kaggle: https://www.kaggle.com/datasets/kuanghueilee/scan-features",
        "or the archive of NCR, which later papers use: https://ncr-paper.cdn.bcebos.com/data/NCR-data.tar",
        f"vocabulary {VOCABULARY.name} (11,353 words, sha256 begins {VOCABULARY.sha256}): {VOCABULARY.where}",
    ),
    folders=("coco_precomp",),
    prefixes={"train": "train", "dev": "dev", "test": "testall"},
    files=("{split}_ims.npy", "{split}_caps.txt", "{split}_ids.txt"),
    licence="Annotations CC BY 4.0, images under Flickr terms of use",
    licence_id="cc-by-4.0",
    licence_urls=("https://creativecommons.org/licenses/by/4.0/", "https://www.flickr.com/help/terms"),
    published="2018",
    terms=(
        "You may share the captions with credit to the COCO Consortium. The consortium does not own the "
        "images; their use must follow the Flickr terms."
    ),
    upload=("captions",),
    upload_reason=(
        "the captions are CC BY 4.0; the features have no licence of their own, and their images are under "
        "the Flickr terms"
    ),
    citation="""@inproceedings{lin2014microsoft,
  title     = {Microsoft {COCO}: Common Objects in Context},
  author    = {Lin, Tsung-Yi and Maire, Michael and Belongie, Serge and Hays, James and Perona, Pietro and
               Ramanan, Deva and Doll{\\'a}r, Piotr and Zitnick, C. Lawrence},
  booktitle = {European Conference on Computer Vision},
  year      = {2014}
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
            "coco_precomp_0.2.npy": (
                0.2,
                16,
                "a0ca6052556963d637c597ada5837a5e899c70ea63b3ed540dc3ce4a0cac11cc",
            ),
            "coco_precomp_0.4.npy": (
                0.4,
                96,
                "9f674ad089f7d375d8aad51638b6621b26d321f45944e745662d5afc10091870",
            ),
            "coco_precomp_0.5.npy": (
                0.5,
                43,
                "ba9658be353a59e3cef88ae3c07abec633ccf1af6d083233ad4839075e290149",
            ),
            "coco_precomp_0.6.npy": (
                0.6,
                96,
                "7be1266823f938e4165bd6dd5f1ced12124a37e78254f63f54c78eafe99071bb",
            ),
        },
    ),
    *files_shared_by(
        "RCL and L2RM",
        "image",
        {
            "the coco 0.2 permutation": (0.2, None, "0b1a905728231970"),
            "the coco 0.4 permutation": (0.4, None, "2a6c9f0df8be6869"),
            "the coco 0.5 permutation": (0.5, None, "7948491d3cd16aa3"),
            "the coco 0.6 permutation": (0.6, None, "e6a6aca04c7feed7"),
            "the coco 0.8 permutation": (0.8, None, "5c7f830f87069aef"),
        },
    ),
)


def read_labels(image_ids: Iterable[object]) -> Labels:
    """Read the labels of the package ``eccv_caption`` for the test split.

    The captions of an image must be in ascending order of their ids, as in Karpathy's split. Two captions with labels
    in ECCV Caption are not in the split.

    Args:
        image_ids: COCO's ids of the 5,000 images, in the order of the split.

    Raises:
        ScoresError: the images differ from Karpathy's split, or are in another order.
    """
    data = files(LABELS_PACKAGE) / "data"
    with (data / "coco_test_ids.npy").open("rb") as stream:
        captions: Int64Array = np.load(stream, allow_pickle=False)
    owners = _read(data / "original_caption_to_image.json")
    own_ids = [str(image) for image in image_ids]
    # the package lists five captions per image, in the order of Karpathy's split
    per_image = len(captions) // len(own_ids)
    images = [owners[caption][0] for caption in captions[::per_image].tolist()]
    # labels go by position, so images in another order would get each other's
    for place, (ours, expected) in enumerate(zip(own_ids, images, strict=True)):
        if ours != str(expected):
            raise ScoresError(
                f"image {place} of coco/test has the id {ours}, the labels of {LABELS_PACKAGE} expect {expected}; "
                "prepare COCO from files in the order of Karpathy's split, whose ids are those of COCO"
            )
    image_places = {image: place for place, image in enumerate(images)}
    caption_places = {caption: place for place, caption in enumerate(captions.tolist())}

    def both(name: str) -> tuple[Matches, Matches]:
        return (
            _matches(_read(data / f"{name}_image_to_caption.json"), image_places, caption_places),
            _matches(_read(data / f"{name}_caption_to_image.json"), caption_places, image_places),
        )

    return Labels(both("eccv"), both("cxc"))


def _read(path: Any) -> dict[int, list[int]]:
    content = json.loads(path.read_text(encoding="utf-8"))
    return {int(query): [int(item) for item in items] for query, items in content.items()}


def _matches(labels: dict[int, list[int]], queries: dict[int, int], items: dict[int, int]) -> Matches:
    ordered = sorted((queries[query], matches) for query, matches in labels.items())
    # a match outside the split is never found, but the totals below count it
    inside = [(query, items[item]) for query, matches in ordered for item in matches if item in items]
    query, item = np.array(inside, np.int64).T
    return Matches(query, item, np.array([len(matches) for _, matches in ordered], np.int64))


SPEC = ScanLayout(
    name="coco",
    title="MS-COCO",
    images={"train": 113_287, "dev": 1_000, "test": 5_000},
    captions_per_image=5,
    n_regions=36,
    feature_dim=2048,
    protocols=("5fold-1k", "5k"),
    origin=ORIGIN,
    noise_files=NOISE_FILES,
    all_captions={"test": 25_010},
    labels={"test": LabelSource(LABELS_PACKAGE, "eccv", read_labels)},
)
