"""Images in plain PyTorch: handwritten digits of which 60 % have a wrong label, cross entropy against JAL with its L1 penalty.

    pip install . scikit-learn           (in noiseproof's repository; scikit-learn has the digits)
    python images_pytorch.py

Three lines differ from an ordinary training loop: the criterion, the decay, and their sum.
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import noiseproof

images, labels = load_digits(return_X_y=True)
x, y = torch.tensor(images).float().view(-1, 1, 8, 8) / 16, torch.tensor(labels)
order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
train, test = order[:1400], order[1400:]

noisy = noiseproof.noise.symmetric(10, 0.6).apply(y[train].numpy(), seed=0)
given = torch.tensor(noisy.labels)  # in your work: the labels you have


def network() -> nn.Module:
    torch.manual_seed(0)
    first = [nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*first, *second, nn.Linear(512, 10))


def accuracy(criterion: nn.Module, l1: float, epochs: int = 40) -> float:
    model = network()
    optimiser = torch.optim.Adam(model.parameters(), 2e-3)  # no weight_decay: L1 takes its place
    decay = noiseproof.L1(model, l1)
    for _ in range(epochs):
        for batch in torch.randperm(len(train)).split(128):
            optimiser.zero_grad()
            loss: Tensor = criterion(model(x[train][batch]), given[batch]) + decay()
            loss.backward()
            optimiser.step()
    model.eval()
    with torch.no_grad():
        return (model(x[test]).argmax(1) == y[test]).float().mean().item()


if __name__ == "__main__":
    print(f"{noisy.mask.mean():.0%} of {len(given)} labels are wrong; accuracy on right ones:")
    print(f"  cross entropy      {accuracy(nn.CrossEntropyLoss(), 0.0):.1%}")
    print(f"  JAL-CE, L1 5e-5    {accuracy(noiseproof.JALCE(a=30.0), 5e-5):.1%}")
