"""MS-COCO: sizes, splits and files (protocol.md, Datasets and splits)."""

from ncl_bench.data.captions import ScanLayout
from ncl_bench.data.spec import KnownFile, Origin

VOCABULARY = KnownFile(
    "coco_precomp_vocab.json", "91b208d4", where="folder vocab/ of https://github.com/Paranioar/SGRAF"
)

ORIGIN = Origin(
    summary=(
        "Photographs of common objects in context, each with five English captions by crowd workers, in "
        "Karpathy's split; every image as 36 region features of a bottom-up attention detector, as SCAN "
        "published them."
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
    extra_files=(),
    dtypes=("float32",),
    ids_span_splits=True,
    licence="Annotations CC BY 4.0, images under Flickr terms of use",
    licence_id="cc-by-4.0",
    terms=(
        "The captions may be passed on with credit to the COCO Consortium; the consortium does not own the"
        " images, whose use must follow the Flickr terms."
    ),
    noise=(
        "The pairs are clean; the benchmark corrupts train, and only train, by moving images between "
        "captions or between whole groups of captions."
    ),
    upload=("captions",),
    upload_reason=(
        "the captions are CC BY 4.0, but the images that the features were made from are under the Flickr "
        "terms and the features come without a licence of their own"
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

SPEC = ScanLayout(
    name="coco",
    title="MS-COCO",
    images={"train": 113_287, "dev": 1_000, "test": 5_000},
    captions_per_image=5,
    n_regions=36,
    feature_dim=2048,
    noise="synthetic",
    protocols=("5fold-1k", "5k"),
    languages=("en",),
    tokenizers={"en": "word"},
    origin=ORIGIN,
)
