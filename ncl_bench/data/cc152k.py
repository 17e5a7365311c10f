"""CC152K: sizes, splits and files (protocol.md, Datasets and splits)."""

from collections.abc import Sequence

from ncl_bench.data.captions import read_table, unique_ids
from ncl_bench.data.download import Download, read_text
from ncl_bench.data.spec import DatasetSpec, KnownFile, Origin, Split

VOCABULARY = KnownFile(
    "cc152k_precomp_vocab.json", "46b4a19c", where="folder data/vocab/ of https://github.com/penghu-cs/RCL"
)

ORIGIN = Origin(
    summary=(
        "Web images with their cleaned alt-texts, a sample of Conceptual Captions by the authors of NCR. "
        "Train comes from its training part, dev and test from its validation part. Each image has 36 "
        "region features of a bottom-up attention detector."
    ),
    homepage="https://github.com/XLearning-SCU/2021-NeurIPS-NCR",
    obtain=(
        "the archive of NCR: https://ncr-paper.cdn.bcebos.com/data/NCR-data.tar",
        f"vocabulary {VOCABULARY.name} (12,072 words, sha256 begins {VOCABULARY.sha256}): {VOCABULARY.where}",
    ),
    folders=("cc152k_precomp",),
    files=("{split}_ims.npy", "{split}_caps.tsv"),
    ids_span_splits=False,
    licence="Conceptual Captions licence",
    licence_urls=("https://github.com/google-research-datasets/conceptual-captions/blob/master/LICENSE",),
    published="2021",
    terms=(
        "You may use captions and image addresses for any purpose; please acknowledge Google as the source. "
        "The licence does not cover the images."
    ),
    noise=(
        "Natural: an estimated 3 to 20 % of the alt-texts of Conceptual Captions do not fit their images. No "
        "estimate exists for a split of CC152K, and no list of the wrong pairs."
    ),
    upload=("captions",),
    upload_reason=(
        "the licence of Conceptual Captions covers its captions, but neither the images nor features made "
        "from them"
    ),
    citation="""@inproceedings{sharma2018conceptual,
  title     = {Conceptual Captions: A Cleaned, Hypernymed, Image Alt-text Dataset For Automatic Image
               Captioning},
  author    = {Sharma, Piyush and Ding, Nan and Goodman, Sebastian and Soricut, Radu},
  booktitle = {Annual Meeting of the Association for Computational Linguistics},
  year      = {2018}
}
@inproceedings{huang2021learning,
  title     = {Learning with Noisy Correspondence for Cross-modal Matching},
  author    = {Huang, Zhenyu and Niu, Guocheng and Liu, Xiao and Ding, Wenbiao and Xiao, Xinyan and
               Wu, Hua and Peng, Xi},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2021}
}""",
    vocabulary=VOCABULARY,
)


class CC152K(DatasetSpec):
    """Captions and ids in one tab-separated file per split."""

    def read_captions(self, download: Download, paths: Sequence[str], split: str) -> Split:
        """Read captions and ids of one split from its tab-separated file.

        Args:
            download: the folder or zip file that the user gave.
            paths: ``origin.files`` of this split.
            split: ``train``, ``dev`` or ``test``.

        Raises:
            DataError: a file is missing, damaged, or has another length than the protocol.
        """
        name = f"{download.place}/{paths[1]}"
        ids, captions = read_table(read_text(download, paths[1]), name)
        return Split(unique_ids(ids, self.images[split], 1, name), {self.languages[0]: captions})


SPEC = CC152K(
    name="cc152k",
    title="CC152K",
    images={"train": 150_000, "dev": 1_000, "test": 1_000},
    captions_per_image=1,
    n_regions=36,
    feature_dim=2048,
    noise="natural",
    protocols=("1k",),
    origin=ORIGIN,
)
