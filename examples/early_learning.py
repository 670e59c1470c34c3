"""Early-learning regularisation in plain PyTorch: digits of which 40 % have a wrong label, cross entropy with it and without.

    pip install . scikit-learn           (in noiseproof's repository; scikit-learn has the digits)
    python early_learning.py

Two things differ from an ordinary training loop: the penalty in the loss, and the batch's indices, which it is called with.
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import noiseproof

images, labels = load_digits(return_X_y=True)
x, y = torch.tensor(images).float() / 16, torch.tensor(labels)
order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
train, test = order[:1400], order[1400:]

noisy = noiseproof.noise.symmetric(10, 0.4).apply(y[train].numpy(), seed=0)
given = torch.tensor(noisy.labels)  # in your work: the labels you have


def accuracy(strength: float, epochs: int = 60) -> float:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    optimiser = torch.optim.Adam(model.parameters(), 2e-3)
    criterion, penalty = nn.CrossEntropyLoss(), noiseproof.ELR(len(train), classes=10, strength=strength)
    for _ in range(epochs):
        for indices in torch.randperm(len(train)).split(128):
            optimiser.zero_grad()
            logits = model(x[train][indices])
            loss: Tensor = criterion(logits, given[indices]) + penalty(logits, indices)
            loss.backward()
            optimiser.step()
    with torch.no_grad():
        return (model(x[test]).argmax(1) == y[test]).float().mean().item()


if __name__ == "__main__":
    print(f"{noisy.mask.mean():.0%} of {len(given)} labels are wrong; accuracy on right ones:")
    print(f"  cross entropy      {accuracy(0.0):.1%}")
    print(f"  with ELR           {accuracy(7.0):.1%}")
