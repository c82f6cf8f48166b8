"""A threshold for a gallery without labels, read from how its items are linked: better than the model's?

After "Learning for Transductive Threshold Calibration in Open-World Recognition" (OpenGCN, arXiv 2305.12039):
a graph network learns from labelled classes which links of a graph of nearest neighbors join one label, and
predicts from the links of unlabelled classes what each threshold would do. Built here, smaller: the network
sees similarities, ranks, densities and shared neighbors, never an embedding (6,000 weights, one round of
messages, the mean of three), and predicted is a rate of searches. With an item's nearest others j = 1, 2, ...
and h_ij = P(j is of another label, all before it of the item's own), a search without its own label gets a
match at a threshold t with probability 1 - prod_{s_ij >= t} (1 - h_ij), by the chain rule: `first`. `decided`
takes a link for one of two labels where its h is above .5; `links` learns P(j is of another label) from all
links, and decides so. The threshold is the lowest whose mean over the items is at most the FPIR asked for.

Networks learn from galleries drawn from training classes: of the same set (`own`), or of the other sets
(`others`), which is what somebody without labels could have. They are compared with the threshold that the
bundle brings, and with what leaving labelled items out chooses, on the best photo's cosine of unrefined
embeddings: FPIR and FNIR of queries of another day, with paired 95 % intervals over labels. A threshold wins
on a part where its FPIR is surely nearer to what was asked for than the bundle's, its FNIR not surely higher.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.common.record import save_result
from benchmarks.quality.protocol_data import protocol_parser
from benchmarks.quality.protocol_embeddings import PartEmbeddings
from vicinal.calibration.arrays import FloatArray, Floats, Ints, Mask, Objects
from vicinal.calibration.rates.paired_bootstrap import LabelDraws, Searches
from vicinal.calibration.targets import lowest_threshold
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.service.search.pipeline import Pipeline, starting_threshold

WAYS = {"first": ("first", "decided"), "links": ("links",)}
# Links of an item, neighbors that two items may share, and numbers that a link is told by.
_N_LINKS, _NEIGHBORHOODS, _WIDTH = 64, (4, 16), 32
_MOST_LABELS, _MOST_PHOTOS, _MOST_ITEMS = 300, 40, 400


@dataclass(frozen=True)
class Links:
    """Nearest others of (m,) items: descending similarities (m, K), features (m, K, F), if labels differ."""

    neighbors: Ints
    similarities: FloatArray
    features: FloatArray
    differ: Mask

    @classmethod
    def of(cls, embeddings: FloatArray, labels: Objects) -> Self:
        """Links of a gallery; nothing but `differ` knows its labels."""
        m = len(embeddings)
        k = min(_N_LINKS, m - 1)
        s = embeddings @ embeddings.T
        center, spread = s.mean(), s.std()
        np.fill_diagonal(s, -np.inf)
        order = np.argsort(-s, axis=1, kind="stable")[:, :k]
        near = np.take_along_axis(s, order, axis=1)
        ranks = np.full((m, m), k, np.int32)
        np.put_along_axis(ranks, order, np.arange(k, dtype=np.int32)[None], axis=1)
        own = np.broadcast_to(np.arange(m)[:, None], order.shape)
        mean, std = near.mean(axis=1)[:, None], near.std(axis=1)[:, None] + 1e-3
        told = [
            near,
            (near - center) / spread,
            (near - mean) / std,
            (near - mean[order, 0]) / std[order, 0],
            near - near[:, :1],
            near - near[order, 0],
            np.diff(near, axis=1, append=near[:, -1:]),
            np.log1p(np.broadcast_to(np.arange(k), near.shape)),
            np.log1p(ranks[order, own]),
            np.full(near.shape, np.log(m)),
        ]
        for at in [min(place, k - 1) for place in (3, 7, 15)]:
            told += [near[order, at], np.broadcast_to(near[:, [at]], near.shape)]
        for size in _NEIGHBORHOODS:
            inside = (ranks < size).astype(np.float32)
            told.append((inside @ inside.T.copy())[own, order] / size)
        return cls(order, near, np.stack(told, axis=2).astype(np.float32), labels[order] != labels[:, None])

    @property
    def counted(self) -> Mask:
        """(m, K) links before which all join the item's own label."""
        return np.cumsum(self.differ, axis=1) == self.differ

    def threshold(self, differ: Floats, fpir: float) -> float:
        """The lowest threshold of the predicted FPIR, from (m, K) probabilities to be of another label."""
        passed = 1.0 - np.cumprod(1.0 - differ, axis=1)
        more = np.diff(passed, axis=1, prepend=0.0).reshape(-1)
        order = np.argsort(-self.similarities.reshape(-1), kind="stable")
        total = np.cumsum(more[order]) / len(differ)
        first = min(int(np.searchsorted(total, fpir, side="right")), len(order) - 1)
        return float(np.nextafter(self.similarities.reshape(-1)[order[first]], np.float32(2.0)))


def drawn_links(part: PartEmbeddings, n: int, seed: int) -> list[Links]:
    """Links of galleries drawn from training classes: few and many labels, few and many photos of each."""
    rng, found, names = np.random.default_rng(seed), [], np.unique(part.labels.astype(str))
    for _ in range(n):
        n_labels, most = (
            int(np.exp(rng.uniform(np.log(low), np.log(high))))
            for low, high in ((5, min(_MOST_LABELS, len(names)) + 1), (2, _MOST_PHOTOS + 1))
        )
        labels = rng.choice(names, n_labels, replace=False)
        rows = [rng.permutation(np.flatnonzero(part.labels == label))[:most] for label in labels]
        held = part.take(np.concatenate(rows)[:_MOST_ITEMS])
        found.append(Links.of(held.embeddings, held.labels))
    return found


class LinkNetwork(nn.Module):
    """Logits that links join two labels: each sees itself, both of its items, and the links before it."""

    def __init__(self, examples: Sequence[Links]) -> None:
        super().__init__()
        told = np.concatenate([one.features.reshape(-1, one.features.shape[2]) for one in examples])
        self.mean, self.std = (torch.from_numpy(one) for one in (told.mean(axis=0), told.std(axis=0) + 1e-3))
        self.link = nn.Sequential(nn.Linear(told.shape[1], _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _WIDTH))
        self.attention = nn.Linear(_WIDTH, 1)
        self.out = nn.Sequential(nn.Linear(4 * _WIDTH, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, 1))

    def forward(self, features: Tensor, neighbors: Tensor) -> Tensor:
        """(m, K) logits of (m, K, F) features and (m, K) neighbors."""
        each = torch.relu(self.link((features - self.mean) / self.std))
        items = (torch.softmax(self.attention(each), dim=1) * each).sum(dim=1)
        before = each.cumsum(dim=1) / torch.arange(1, each.shape[1] + 1)[:, None]
        near = items[:, None].expand_as(each), items[neighbors]
        return cast("Tensor", self.out(torch.cat([each, before, *near], dim=2))[:, :, 0])

    def differ(self, links: Links) -> Floats:
        """(m, K) probabilities."""
        logits = self(torch.from_numpy(links.features), torch.from_numpy(links.neighbors))
        return np.asarray(torch.sigmoid(logits).detach().numpy(), np.float64)


def trained(examples: Sequence[Links], kind: str, seed: int, n_steps: int) -> LinkNetwork:
    """A network that has learned from galleries."""
    torch.manual_seed(seed)
    network = LinkNetwork(examples)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=n_steps)
    rng = np.random.default_rng(seed)
    for _ in range(n_steps):
        links = examples[rng.integers(len(examples))]
        logits = network(torch.from_numpy(links.features), torch.from_numpy(links.neighbors))
        counted = torch.from_numpy(links.counted if kind == "first" else np.full(links.differ.shape, True))
        answers = torch.from_numpy(links.differ.astype(np.float32))
        loss = nn.functional.binary_cross_entropy_with_logits(logits[counted], answers[counted])
        network.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return network


def searched(part: PartEmbeddings) -> Searches:
    """Best photo's cosine of the queries of another day: of their own label, and of strangers."""
    gallery, known, absent = (part.of_role(role) for role in ("gallery", "query", "absent"))
    similarities = known.embeddings @ gallery.embeddings.T
    mates = np.where(known.labels[:, None] == gallery.labels, similarities, -np.inf).max(axis=1)
    strangers = (absent.embeddings @ gallery.embeddings.T).max(axis=1)
    codes = np.unique(np.concatenate([known.labels, absent.labels]).astype(str), return_inverse=True)[1]
    scores = mates.astype(np.float64), strangers.astype(np.float64)
    return Searches(scores[0], codes[: len(mates)], scores[1], codes[len(mates) :])


def compared(searches: Searches, thresholds: dict[str, float], fpir: float) -> dict[str, Any]:
    """True rates at thresholds, the first of which is the bundle's, how much farther off than that the FPIR
    is, and how many more are missed: each with a 95 % interval.
    """
    draws = LabelDraws(searches.mate_labels, searches.other_labels, 0)
    figures = [figure(one) for one in thresholds.values() for figure in (searches.fpir, searches.fnir)]
    # What was measured, and then what was drawn: fpir and fnir of each threshold.
    both = np.concatenate([draws.measured(figures)[:, None], draws.drawn(figures)], axis=1)
    rates = both.reshape(len(thresholds), 2, -1)
    apart, found = np.abs(rates[:, 0] - fpir), {}
    for (name, threshold), own, off in zip(thresholds.items(), rates, apart, strict=True):
        told = {
            "fpir": own[0],
            "fnir": own[1],
            "distance": off - apart[0],
            "missed more": own[1] - rates[0, 1],
        }
        ends = {what: (one[0], *np.quantile(one[1:], [0.025, 0.975])) for what, one in told.items()}
        shown = {what: [round(float(end), 4) for end in one] for what, one in ends.items()}
        found[name] = {"threshold": round(float(threshold), 4), **shown}
    return found


def main() -> None:
    """Learn from the training parts, measure the other parts, and save what was found."""
    parser = protocol_parser(__doc__)
    parser.add_argument("--galleries", type=int, default=100, help="drawn from each set to learn from")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--networks", type=int, default=3)
    parser.add_argument("--cache", type=Path, help="folder that keeps the embeddings")
    options = parser.parse_args()
    bundle = ModelBundle.open(options.bundle)
    embedder, brought = Embedder(bundle), starting_threshold(bundle, Pipeline())
    if brought is None:
        parser.error("the bundle brings no threshold to compare with")
    brought = 1.0 + np.log(brought) / 2.0  # Of a score exp(2 s - 2).
    draws = {}
    for name in options.sets:
        part = PartEmbeddings.of(options.data / name, "train", embedder, options.cache)
        draws[name] = drawn_links(part, options.galleries, 0)

    def networks(names: Sequence[str], kind: str) -> list[LinkNetwork]:
        examples = [one for name in names for one in draws[name]]
        return [trained(examples, kind, seed, options.steps) for seed in range(options.networks)]

    parts: dict[str, Any] = {}
    for name in options.sets:
        sources = {"own": [name], "others": [one for one in options.sets if one != name]}
        learned = {(kind, source): networks(sources[source], kind) for source in sources for kind in WAYS}
        for split in options.parts:
            part = PartEmbeddings.of(options.data / name, split, embedder, options.cache)
            gallery, searches = part.of_role("gallery"), searched(part)
            links = Links.of(gallery.embeddings, gallery.labels)
            own = np.where(links.differ, links.similarities, -np.inf).max(axis=1).astype(np.float64)
            thresholds = {"bundle": brought}
            for (kind, source), them in learned.items():
                differ = np.mean([one.differ(links) for one in them], axis=0)
                for way in WAYS[kind]:
                    read = differ if way == "first" else (differ > 0.5).astype(np.float64)
                    thresholds[f"{way}, {source}"] = links.threshold(read, options.fpir)
            for which, scores in (("labels, left out", own), ("exact", searches.others)):
                thresholds[which] = lowest_threshold(scores, options.fpir) or 1.0
            parts[f"{name}, {split}"] = compared(searches, thresholds, options.fpir)
            for which, figures in parts[f"{name}, {split}"].items():
                print(f"{name}, {split}, {which}: {figures}", flush=True)
    shown = {key: getattr(options, key) for key in ("fpir", "galleries", "steps", "networks")}
    print(save_result("transductive_threshold", {**shown, "bundle": bundle.name, "parts": parts}))


if __name__ == "__main__":
    main()
