"""Noise of Web: sizes, splits and files (docs/protocol.md, Datasets and splits)."""

from collections.abc import Sequence

from ncl_bench.data.captions import lines_of, read_token_ids
from ncl_bench.data.download import Download, find_file, read_text
from ncl_bench.data.spec import DatasetSpec, HubFile, Origin, Split, TokenKey
from ncl_bench.data.vocabulary import parse_vocabulary

ARCHIVE = HubFile(
    "NoW.zip",
    "0aa54949d0e4ffd6fb5b72dcccb8eff99734a62d3b69390fc826e3109ae467ec",
    3_534_902_435,
    repository="NJUyued/NoW",
    revision="6905d21",
)
VOCABULARY_SIZES = {"bpe": 10_000, "bert": 32_702, "jieba": 56_271}

ORIGIN = Origin(
    summary=(
        "Screenshots of web pages, 720 x 1280 pixels, each with the description from the page's meta data. "
        "Nobody annotated or cleaned the pairs of train. Most captions are Chinese, others English, Japanese or "
        "Russian; they are published only as token ids. Each image has 36 region features of an APT "
        "detector."
    ),
    homepage="https://github.com/alipay/PC2-NoiseofWeb",
    obtain=(
        "NoW.zip of https://huggingface.co/datasets/NJUyued/NoW, or `ncl-bench prepare now --download --to"
        " DIR`; "
        "the zip file is read in place",
        f"NoW.zip has {ARCHIVE.bytes:,} bytes and sha256 {ARCHIVE.sha256}",
    ),
    folders=("h5100k_precomp", "now100k_precomp"),
    files=(
        "{split}_ims.npy",
        "{split}_ids.txt",
        *(f"{{split}}_caps_{name}.txt" for name in VOCABULARY_SIZES),
    ),
    extra_files=tuple(f"now100k_precomp_vocab_{name}.json" for name in VOCABULARY_SIZES),
    dtypes=("float32", "float16", "float64"),
    ids_span_splits=False,
    licence="CC BY-NC 4.0",
    licence_id="cc-by-nc-4.0",
    licence_urls=("https://creativecommons.org/licenses/by-nc/4.0/",),
    published="2024",
    terms="You may share and change it for non-commercial purposes, with credit to its authors.",
    noise=(
        "Natural: the authors estimate that nearly 70 % of the dataset's pairs are noisy. Dev and test hold pairs "
        "that people judged to match. No list of the wrong pairs exists."
    ),
    upload=("captions", "images"),
    upload_reason="the licence asks for credit and forbids commercial use",
    citation="""@inproceedings{duan2024pc2,
  title     = {{PC2}: Pseudo-Classification Based Pseudo-Captioning for Noisy Correspondence Learning in
               Cross-Modal Retrieval},
  author    = {Duan, Yue and Gu, Zhangxuan and Ying, Zhenzhe and Qi, Lei and Meng, Changhua and
               Shi, Yinghuan},
  booktitle = {ACM International Conference on Multimedia},
  year      = {2024}
}""",
    archive=ARCHIVE,
)


class NoiseOfWeb(DatasetSpec):
    """Captions as token ids with their vocabularies, in a folder or a zip file."""

    def read_vocabularies(self, download: Download) -> dict[TokenKey, tuple[bytes, str]]:
        """Return the json bytes of the published vocabularies, which are next to the folder of the features.

        Raises:
            DataError: one is missing.
        """
        source = f"ids of {ARCHIVE.repository}"
        return {
            (None, name): (read_text(download, find_file(download, file)), source)
            for name, file in zip(VOCABULARY_SIZES, self.origin.extra_files, strict=True)
        }

    def read_captions(self, download: Download, paths: Sequence[str], split: str) -> Split:
        """Read token ids and image ids of one split.

        Ids that name several images and captions without tokens are kept with a warning, as in PC2's training code.

        Args:
            download: the folder or zip file that the user gave.
            paths: ``origin.files`` of this split.
            split: ``train``, ``dev`` or ``test``.

        Raises:
            DataError: a file is missing, damaged, of another length than the protocol, or holds an id outside its
                vocabulary.
        """
        image_ids = lines_of(download, paths[1])
        warnings = []
        if repeats := len(image_ids) - len(set(image_ids)):
            warnings.append(f"{paths[1]}: {repeats:,} line(s) repeat the id of an earlier image")
        tokens = {}
        for (key, (content, _)), path in zip(
            self.read_vocabularies(download).items(), paths[2:], strict=True
        ):
            vocabulary = parse_vocabulary(content, key[1])
            name = f"{download.place}/{path}"
            table = read_token_ids(
                read_text(download, path),
                name,
                start=vocabulary.start,
                end=vocabulary.end,
                size=vocabulary.size,
                at_least=self.n_captions(split),
            )
            # start and end alone
            if empty := int((table.lengths == 2).sum()):
                warnings.append(f"{path}: {empty:,} caption(s) hold no token id")
            tokens[key] = table
        return Split(image_ids, tokens=tokens, warnings=tuple(warnings))


SPEC = NoiseOfWeb(
    name="now",
    title="Noise of Web",
    images={"train": 98_000, "dev": 1_000, "test": 1_000},
    captions_per_image=1,
    n_regions=36,
    feature_dim=768,
    noise="natural",
    protocols=("1k",),
    languages=("zh", "en", "ja", "ru"),
    # a caption may mix languages, so all of them share one list of ids
    tokenizers={"zh": "jieba", "en": "jieba", "ja": "jieba", "ru": "jieba"},
    origin=ORIGIN,
    shipped_tokenizers=tuple(VOCABULARY_SIZES),
)
