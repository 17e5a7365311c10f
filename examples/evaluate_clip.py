"""From embeddings to a result: encode each image and each caption once, compare by cosine, evaluate.

    python examples/evaluate_clip.py    # seconds: digits, with a stand-in for CLIP that is fitted on train
    python examples/evaluate_clip.py --model ViT-B-32 --pretrained openai --dataset flickr30k --root data

The second line is CLIP without training, by OpenCLIP, which downloads the weights; the dataset needs its images
(docs/clip.md).
"""

import argparse

import numpy as np

import ncl_bench
from ncl_bench import load_dataset
from ncl_bench.data.pictures import open_picture


def clip_embeddings(dataset, model, pretrained):
    """Embeddings of all images and of all captions, by a CLIP of OpenCLIP."""
    import open_clip
    import torch

    network, _, transform = open_clip.create_model_and_transforms(model, pretrained)
    network.eval()  # the transform is that of evaluation: resize, crop the centre
    tokenize = open_clip.get_tokenizer(model)
    images, captions = [], []
    with torch.no_grad():
        for file in dataset.images:
            with open_picture(file) as picture:
                images.append(network.encode_image(transform(picture)[None]))
        for text in dataset.captions:
            captions.append(network.encode_text(tokenize([text])))
    return torch.cat(images).numpy(), torch.cat(captions).numpy()


def stand_in_embeddings(dataset):
    """The same shapes without CLIP: brightness of the pixels, and what ridge regression expects from the words."""
    train = load_dataset(dataset.name, split="train")
    words, pixels = word_counts(train), pixels_of(train)
    mean = pixels.mean(axis=0)
    weights = np.linalg.solve(
        words.T @ words + np.eye(words.shape[1]), words.T @ (pixels - mean)[train.caption_to_image]
    )
    return pixels_of(dataset) - mean, word_counts(dataset) @ weights


def word_counts(dataset):
    tokens = dataset.read(np.arange(len(dataset))).caption_tokens
    return np.stack([np.bincount(row[row > 0], minlength=dataset.vocabulary.size) for row in tokens]).astype(
        float
    )


def pixels_of(dataset):
    return dataset.image_features[np.arange(dataset.n_images)].reshape(dataset.n_images, -1)


def unit_length(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="a model of OpenCLIP (default: the stand-in)")
    parser.add_argument("--pretrained", help="weights of that model")
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--root", help="folder of prepared datasets")
    options = parser.parse_args()
    test = load_dataset(options.dataset, split="test", root=options.root)
    if options.model is None:
        images, captions = stand_in_embeddings(test)
    else:
        images, captions = clip_embeddings(test, options.model, options.pretrained)
    # (n_images, n_captions), images as rows; an image is encoded once, however many captions it has
    similarities = unit_length(images) @ unit_length(captions).T
    print(ncl_bench.evaluate(similarities, dataset=options.dataset))
