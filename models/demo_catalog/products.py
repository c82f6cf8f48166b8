"""Products of a catalog: kinds, colors, patterns and proportions, drawn from one seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

RGB = tuple[int, int, int]
_T = TypeVar("_T")
_Look = tuple[str, str, str, str]  # kind, pattern, families of main and accent color

KINDS = (
    "backpack", "book", "bottle", "can", "chair", "clock", "cushion", "headphones", "jar", "kettle",
    "lamp", "mug", "planter", "sneaker", "teapot", "tshirt", "umbrella", "watch",
)  # fmt: skip
PATTERNS = (
    "plain", "stripes", "pinstripes", "diagonals", "dots", "checks", "gradient", "chevrons", "blocks",
    "waves", "plaid", "diamonds",
)  # fmt: skip
TEXTURES = ("smooth", "ribbed", "woven", "speckled")
LOGOS = ("none", "disc", "star", "leaf", "peaks", "heart", "bolt", "rings")
WORDS = (
    "FERN", "NORTH", "SUNDAY", "PEBBLE", "ATLAS", "MELLOW", "HARBOR", "CEDAR", "LUMEN", "OTTER", "JUNIPER",
    "HELLO", "RIVER", "MAPLE", "COMET", "SALT", "EMBER", "DRIFT", "CLOVER", "PLUM", "ECHO", "SPARROW",
    "No. 5", "No. 27", "1984", "A&O", "TEN", "BASIL", "FIG", "WILLOW",
)  # fmt: skip

# Any two are at least 65 apart in RGB, so that two products which share a pattern still differ to the eye.
PALETTE: dict[str, RGB] = {
    "red": (205, 48, 44), "orange": (240, 128, 36), "yellow": (247, 205, 70), "lime": (152, 194, 62),
    "green": (34, 112, 66), "teal": (26, 160, 156), "sky": (128, 194, 236), "blue": (36, 80, 186),
    "purple": (122, 66, 162), "pink": (242, 148, 182), "brown": (126, 78, 46), "cream": (244, 235, 214),
    "gray": (146, 150, 156), "charcoal": (46, 46, 54),
}  # fmt: skip
_TRIMS: tuple[RGB, ...] = (
    (240, 238, 232), (44, 44, 48), (188, 140, 92), (110, 70, 44), (176, 180, 186), (212, 172, 92),
)  # fmt: skip
_COLOR_JITTER = 9
_MIN_CONTRAST = 130.0
_MIN_LIGHTNESS_STEP = 40.0

# Well below the looks there are (kinds x colors x patterns), so that an untaken one is found fast.
MAX_PRODUCTS = 1000


@dataclass(frozen=True)
class Product:
    """The design of one product; everything that its pictures show follows from these fields.

    `stream` is (seed, position in the catalog) and feeds the random streams of the views. `breadth`,
    `tallness` and `detail` lie in [0, 1] and steer the proportions and small parts of the kind;
    `pattern_scale` in [0.7, 1.4] stretches the pattern. `label` is the printed word, '' for none.
    """

    id: str
    kind: str
    stream: tuple[int, int]
    main: RGB
    accent: RGB
    trim: RGB
    pattern: str
    pattern_scale: float
    texture: str
    breadth: float
    tallness: float
    detail: float
    label: str
    logo: str


def make_catalog(seed: int = 0, n_products: int = 70) -> list[Product]:
    """Draw the 1 to 1000 products of one catalog; the same arguments give the same products on every machine.

    The kinds take turns, so any run of len(KINDS) neighbors holds each kind once. Products of a kind that
    share the pattern have main colors of different families, and are not each other with swapped colors.
    """
    if seed < 0:
        raise ValueError(f"seed must be 0 or more, got {seed}")
    if not 1 <= n_products <= MAX_PRODUCTS:
        raise ValueError(f"n_products must be between 1 and {MAX_PRODUCTS}, got {n_products}")
    taken: set[_Look] = set()
    return [_design(seed, index, taken) for index in range(n_products)]


def _design(seed: int, index: int, taken: set[_Look]) -> Product:
    rng = np.random.default_rng((seed, 0, index))
    kind = KINDS[index % len(KINDS)]
    _, pattern, main, accent = _untaken_look(rng, kind, taken)
    return Product(
        id=f"{kind}-{index // len(KINDS) + 1:02d}",
        kind=kind,
        stream=(seed, index),
        main=_jittered(rng, PALETTE[main]),
        accent=_jittered(rng, PALETTE[accent]),
        trim=_jittered(rng, _pick(rng, (*_TRIMS, PALETTE[accent]))),
        pattern=pattern,
        pattern_scale=float(rng.uniform(0.7, 1.4)),
        texture=_pick(rng, TEXTURES),
        breadth=float(rng.uniform()),
        tallness=float(rng.uniform()),
        detail=float(rng.uniform()),
        label=_pick(rng, WORDS) if rng.uniform() < 0.75 else "",
        logo=_pick(rng, LOGOS),
    )


def _untaken_look(rng: np.random.Generator, kind: str, taken: set[_Look]) -> _Look:
    """A look that no earlier product of the kind can be taken for; marks it as taken."""
    while True:
        main, pattern = _pick(rng, tuple(PALETTE)), _pick(rng, PATTERNS)
        accent = _pick(rng, [c for c in PALETTE if contrasts(PALETTE[main], PALETTE[c])])
        clash = any(
            # Swapped colors count as well: black on red stripes are red on black ones.
            (k, p) == (kind, pattern) and (m == main or (m, a) == (accent, main))
            for k, p, m, a in taken
        )
        if not clash:
            taken.add((kind, pattern, main, accent))
            return kind, pattern, main, accent


def contrasts(a: RGB, b: RGB) -> bool:
    """Tell if a pattern in these two colors can be told from a plain surface."""
    # A step in lightness too: red on blue differs by far in RGB, yet flickers to the eye.
    step = abs(_lightness(a) - _lightness(b))
    return step > _MIN_LIGHTNESS_STEP and float(np.linalg.norm(np.subtract(a, b))) > _MIN_CONTRAST


def _lightness(color: RGB) -> float:
    return 0.299 * color[0] + 0.587 * color[1] + 0.114 * color[2]


def _jittered(rng: np.random.Generator, color: RGB) -> RGB:
    shifts = rng.integers(-_COLOR_JITTER, _COLOR_JITTER, size=3, endpoint=True)
    red, green, blue = np.clip(np.add(color, shifts), 0, 255).tolist()
    return red, green, blue


def _pick(rng: np.random.Generator, choices: Sequence[_T]) -> _T:
    return choices[int(rng.integers(len(choices)))]
