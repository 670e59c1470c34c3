"""Chains: what they promise whatever they are made of, the experiments' own, and what only a GPU can show."""

import dataclasses

import pytest
import torch

from noiseproof.data import (
    IMAGENET,
    Augment,
    ColorJitter,
    HorizontalFlip,
    RandomCrop,
    RandomResizedCrop,
    ResizeCenterCrop,
    evaluation,
)
from noiseproof.paper.datasets import (
    CIFAR10,
    CIFAR100,
    CLOTHING1M,
    cifar10_augment,
    cifar100_augment,
    clothing1m_augment,
)
from noiseproof.paper.rotation import Rotation
from noiseproof.train.batch_loader import photograph_augment

CHAINS = {
    "cifar10": cifar10_augment(),
    "cifar100": cifar100_augment(),
    "webvision": Augment((RandomResizedCrop(size=24), HorizontalFlip(), ColorJitter()), *IMAGENET),
    "clothing1m": Augment((RandomCrop(padding=0, size=24), HorizontalFlip()), *CLOTHING1M),
    "mixed": Augment((HorizontalFlip(), ColorJitter(), Rotation(), RandomResizedCrop(size=20), RandomCrop(2)), *IMAGENET),
    "evaluation": evaluation(*IMAGENET, resize=28, size=24),
    "normalising": evaluation(*CIFAR10),
}
EVERY = pytest.mark.parametrize("name", CHAINS)
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def seeded(seed=0, device="cpu"):
    return torch.Generator(device).manual_seed(seed)


def batch(*shape):
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=seeded(1))


def tensors(drawn):
    return [t for p in drawn if p is not None for t in (getattr(p, field.name) for field in dataclasses.fields(p))]


def moved(drawn, device):
    return [p and type(p)(*(getattr(p, field.name).to(device) for field in dataclasses.fields(p))) for p in drawn]


@EVERY
def test_one_seed_gives_one_result_and_another_seed_another(name):
    images, chain = batch(16, 3, 32, 40), CHAINS[name]
    first = chain(images, seeded(3))
    assert torch.equal(chain(images, seeded(3)), first)
    assert torch.equal(chain(images, seeded(4)), first) != chain.random


@EVERY
def test_images_of_a_batch_are_augmented_differently(name):
    chain = CHAINS[name]
    out = chain(batch(1, 3, 32, 32).expand(64, -1, -1, -1), seeded())
    kinds = len(out.flatten(1).unique(dim=0))
    assert kinds > 32 if chain.random else kinds == 1


@EVERY
def test_the_images_and_the_draw_are_left_as_they_were(name):
    images, chain = batch(8, 3, 32, 32), CHAINS[name]
    drawn = chain.draw(8, (32, 32), seeded())
    before = images.clone(), [t.clone() for t in tensors(drawn)]
    first = chain.apply(images, drawn)
    assert torch.equal(images, before[0])
    assert all(torch.equal(now, then) for now, then in zip(tensors(drawn), before[1], strict=True))
    assert torch.equal(chain.apply(images, drawn), first)


@EVERY
def test_an_images_result_depends_on_no_other_image(name):
    images, chain = batch(8, 3, 30, 37), CHAINS[name]
    drawn = chain.draw(8, (30, 37), seeded())
    alone = [p and type(p)(*(t[5:6] for t in tensors([p]))) for p in drawn]
    torch.testing.assert_close(chain.apply(images[5:6], alone), chain.apply(images, drawn)[5:6], rtol=0, atol=1e-6)


@EVERY
@pytest.mark.parametrize("shape", [(0, 3, 32, 32), (1, 3, 28, 50), (2, 3, 61, 28)], ids=str)
def test_any_shape_gives_a_finite_result_of_the_size_announced(name, shape):
    chain = CHAINS[name]
    out = chain(batch(*shape), seeded())
    assert out.shape == (*shape[:2], *chain.sizes(shape[2:])[-1])
    assert out.dtype == torch.float32
    assert out.is_contiguous()
    assert out.isfinite().all()


def test_one_channel_works():
    chain = Augment((RandomResizedCrop(size=9), RandomCrop(), HorizontalFlip(), Rotation(), ColorJitter()), (0.5,), (0.2,))
    assert chain(batch(4, 1, 12, 17), seeded()).shape == (4, 1, 9, 9)


@EVERY
def test_the_layout_of_the_images_does_not_matter(name):
    images, chain = batch(8, 3, 32, 32), CHAINS[name]
    strided = batch(8, 3, 32, 64)
    strided[..., ::2] = images
    expected = chain(images, seeded())
    torch.testing.assert_close(chain(images.contiguous(memory_format=torch.channels_last), seeded()), expected)
    torch.testing.assert_close(chain(strided[..., ::2], seeded()), expected)


@EVERY
def test_bf16_and_channels_last_are_the_same_numbers_stored_otherwise(name):
    images, chain = batch(8, 3, 32, 32), CHAINS[name]
    stored = dataclasses.replace(chain, dtype=torch.bfloat16, memory_format=torch.channels_last)
    out = stored(images, seeded())
    assert out.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(out, chain(images, seeded()).bfloat16(), rtol=1e-2, atol=1e-6)


def test_normalising_subtracts_the_mean_and_divides_by_the_deviation():
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).expand(1, 3, 16, 16)
    mean, std = (torch.tensor(values, dtype=torch.float64).view(3, 1, 1) for values in CIFAR10)
    expected = (images.double() / 255 - mean) / std
    torch.testing.assert_close(evaluation(*CIFAR10)(images).double(), expected, rtol=0, atol=5e-7)


def test_padding_is_black_before_normalising():
    out = Augment((RandomCrop(padding=50),), *CIFAR100)(batch(64, 3, 8, 8), seeded())
    black = -torch.tensor(CIFAR100.mean) / torch.tensor(CIFAR100.std)
    empty = (out - black.view(3, 1, 1)).abs().flatten(1).amax(dim=1) < 1e-6
    assert empty.any()
    assert not empty.all()


def test_the_experiments_chains_are_those_of_the_protocol():
    pad, flip = RandomCrop(padding=4), HorizontalFlip(p=0.5)
    assert cifar10_augment() == Augment((pad, flip), *CIFAR10)
    assert cifar100_augment() == Augment((pad, flip, Rotation(degrees=20)), *CIFAR100)
    jitter = ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.2)
    resized = RandomResizedCrop(size=224, scale=(0.08, 1), ratio=(3 / 4, 4 / 3))
    assert photograph_augment() == Augment((resized, flip, jitter), *IMAGENET)
    assert clothing1m_augment() == Augment((RandomCrop(padding=0, size=224), flip), *CLOTHING1M)
    assert evaluation(*IMAGENET, resize=256).operations == (ResizeCenterCrop(resize=256, size=224),)
    assert clothing1m_augment(dtype=torch.bfloat16)(batch(2, 3, 256, 256), seeded()).shape == (2, 3, 224, 224)
    assert photograph_augment()(batch(2, 3, 256, 300), seeded()).shape == (2, 3, 224, 224)


@pytest.mark.parametrize("name", ["cifar100", "webvision"])
def test_apply_compiles_in_one_graph(name):
    chain = CHAINS[name]
    images, drawn = batch(4, 3, 32, 32), chain.draw(4, (32, 32), seeded())
    torch._dynamo.reset()
    compiled = torch.compile(chain.apply, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(images, drawn), chain.apply(images, drawn))


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        (torch.zeros(2, 3, 8, 8), TypeError, "images must be uint8, got torch.float32"),
        ([[1]], TypeError, "images must be a tensor, got list"),
        (torch.zeros(3, 8, 8, dtype=torch.uint8), ValueError, r"images must be \[N, C, H, W\], got shape \[3, 8, 8\]"),
        (torch.zeros(2, 3, 0, 8, dtype=torch.uint8), ValueError, r"images must be \[N, C, H, W\], got shape \[2, 3, 0, 8\]"),
        (torch.zeros(2, 1, 8, 8, dtype=torch.uint8), ValueError, "images must have 3 channels, as mean and std do, got 1"),
        (
            torch.zeros(2, 3, 8, 8, dtype=torch.uint8, device="meta"),
            ValueError,
            "generator must be on the images' device, meta, got cpu",
        ),
    ],
)
def test_what_is_not_a_batch_of_bytes_on_the_generators_device_is_refused(images, error, message):
    with pytest.raises(error, match=message):
        cifar10_augment()(images, seeded())


def test_a_random_chain_needs_a_generator():
    with pytest.raises(TypeError, match=r"generator must be a torch.Generator on the images' device, got None"):
        cifar10_augment()(batch(2, 3, 8, 8))


def test_a_draw_of_another_chain_is_refused():
    drawn = cifar10_augment().draw(2, (8, 8), seeded())
    with pytest.raises(ValueError, match="drawn must have one entry per operation, 3, got 2"):
        cifar100_augment().apply(batch(2, 3, 8, 8), drawn)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"std": (0.2, 0.0, 0.2)}, ValueError, r"std must be in \(0, inf\), got 0.0"),
        ({"mean": (0.2, 127.0, 0.2)}, ValueError, r"mean must be in \[0, 1\], got 127.0"),
        ({"mean": (0.2,)}, ValueError, "mean and std must be of one length, at least 1, got 1 and 3"),
        ({"dtype": torch.uint8}, TypeError, "dtype must be a floating point type, got torch.uint8"),
        ({"memory_format": torch.channels_last_3d}, ValueError, "memory_format must be contiguous_format or channels_last"),
        ({"operations": (torch.relu,)}, TypeError, "operations must be augmentations, got <built-in"),
    ],
)
def test_bad_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        dataclasses.replace(cifar10_augment(), **options)


@needs_cuda
@EVERY
def test_the_gpu_gives_the_cpus_numbers(name):
    images, chain = batch(32, 3, 32, 40), CHAINS[name]
    drawn = chain.draw(32, (32, 40), seeded())
    on_gpu = chain.apply(images.cuda(), moved(drawn, "cuda")).cpu()
    torch.testing.assert_close(on_gpu, chain.apply(images, drawn), rtol=0, atol=1e-4)


@needs_cuda
@EVERY
def test_draw_and_apply_are_captured_in_a_cuda_graph_and_draw_anew_at_each_replay(name):
    images, chain = batch(32, 3, 32, 40).cuda(), CHAINS[name]
    generator = seeded(5, "cuda")
    expected = [chain(images, generator) for _ in range(3)]
    generator.manual_seed(5)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        chain(images, seeded(0, "cuda"))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        out = chain(images, generator)
    for wanted in expected:
        graph.replay()
        torch.testing.assert_close(out, wanted, rtol=0, atol=0)
