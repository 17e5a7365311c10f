"""Your own training loop: `load_dataset`, a `DataLoader`, any model, `evaluate`. No reference method is used.

    python examples/own_training_loop.py    # seconds, on the embedded digits with 40 % of the captions moved

For your model replace `TwoTowers`; for your data change the name (docs/training-loop.md).
"""

import torch
from torch.utils.data import DataLoader

import ncl_bench
from ncl_bench import load_dataset


class TwoTowers(torch.nn.Module):
    def __init__(self, train, size=64):
        super().__init__()
        self.image = torch.nn.Linear(train.feature_dim, size)
        self.word = torch.nn.EmbeddingBag(train.vocabulary.size, size, padding_idx=0)

    def forward(self, batch):  # similarities, images as rows and captions as columns
        images = torch.nn.functional.normalize(self.image(batch["image_features"]).mean(dim=1), dim=1)
        captions = torch.nn.functional.normalize(self.word(batch["caption_tokens"]), dim=1)
        return images @ captions.T


def loss_of(similarities):
    """InfoNCE with captions as candidates. It trusts every pair: here your method begins."""
    target = torch.arange(len(similarities), device=similarities.device)
    return torch.nn.functional.cross_entropy(similarities / 0.1, target)


def scores(model, split):
    dataset = load_dataset("digits", split=split).first_images(1000)  # on dev, as many as selection uses
    with torch.no_grad():
        similarities = model(
            dataset.to_torch()
        )  # one row per caption, each image as often as it has captions
    return similarities[:: dataset.captions_per_image]


if __name__ == "__main__":  # worker processes may import this file again
    torch.manual_seed(0)
    train = load_dataset("digits", split="train", noise_ratio=0.4)
    loader = DataLoader(train, batch_size=128, shuffle=True, num_workers=2)
    model = TwoTowers(train)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    for epoch in range(2):
        for batch in loader:
            # a batch also has pair_ids: keys for what you remember about a pair from epoch to epoch
            optimizer.zero_grad()
            loss_of(model(batch)).backward()
            optimizer.step()
        result = ncl_bench.evaluate(scores(model, "dev"), dataset="digits", split="dev")
        print(f"epoch {epoch + 1}: rSum {result.r_sum:.1f} on dev")
    print(ncl_bench.evaluate(scores(model, "test"), dataset="digits"))  # once, at the end
