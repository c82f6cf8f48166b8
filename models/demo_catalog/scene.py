"""Photo of a product: pose, backdrop, light, shadow, things in the way, and the camera's faults."""

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from vicinal.calibration.arrays import FloatArray, Floats
from vicinal.models.demo_catalog.backdrops import room, studio, surface
from vicinal.models.demo_catalog.kinds import draw_product
from vicinal.models.demo_catalog.products import Product

_SUPERSAMPLING = 2
_MIN_SIZE, _MAX_SIZE = 16, 2048
_PAPER = 245.0
_SHADOW_DEPTH = 0.5
_LYING_KINDS = frozenset({"cushion", "headphones", "tshirt", "umbrella", "watch"})
_BACKDROPS = {"studio": studio, "room": room, "surface": surface}
_SETTINGS = tuple(_BACKDROPS)
_Rng = np.random.Generator


@dataclass(frozen=True)
class Shot:
    """Circumstances of one photo.

    `setting` names the backdrop. `corners` (4, 2) is where the product's canvas goes, from the upper left
    clockwise, in units of the photo. `turn` (radians) and `light` (-1 left to 1 right) are those of
    `draw_product`. `gain` scales the brightness, `slope` lets it fall off to the right and downward, and
    `warmth` in [-1, 1] tints it. `blur` is in pixels of a photo of 224, `noise` in gray levels.
    """

    setting: str
    corners: Floats
    turn: float
    light: float
    gain: float
    warmth: float
    slope: tuple[float, float]
    occluded: bool
    blur: float
    noise: float


def render_view(product: Product, view: int, *, size: int = 224) -> Image.Image:
    """Render one photo of a product, 16 to 2048 pixels a side; equal arguments give equal pixels.

    View 0 is the catalog shot: upright, evenly lit, on plain light paper. Every other view differs in pose,
    light, backdrop, occlusion and sharpness. The scene is the same at every size.
    """
    if view < 0:
        raise ValueError(f"view of product '{product.id}' must be 0 or more, got {view}")
    if not _MIN_SIZE <= size <= _MAX_SIZE:
        raise ValueError(f"size must be between {_MIN_SIZE} and {_MAX_SIZE} pixels, got {size}")
    rng = np.random.default_rng((*product.stream, 1, view))
    shot = _catalog_shot() if view == 0 else draw_shot(rng)
    placed = _placed(product, shot, size)
    lying = shot.setting == "surface" or product.kind in _LYING_KINDS
    shadow = _shadow(placed.getchannel("A"), shot.light, lying)
    photo = _laid_over(_backdrop(rng, shot, size), placed, shadow)
    if view == 0:
        return photo
    if shot.occluded:
        _occlude(rng, photo)
    return _developed(rng, photo, shot)


def _catalog_shot() -> Shot:
    return Shot("paper", _quad(0.92, 0.0, (0.0, -0.01)), 0.0, -0.5, 1.0, 0.0, (0.0, 0.0), False, 0.0, 0.0)


def draw_shot(rng: _Rng) -> Shot:
    """Draw how one photo is taken; nothing in it depends on the size of the photo."""
    setting = _SETTINGS[int(rng.integers(len(_SETTINGS)))]
    # Seen from above a thing may lie at any angle; on a table it stands.
    tilt = rng.uniform(-0.65, 0.65) if setting == "surface" else rng.uniform(-0.14, 0.14)
    shift = rng.uniform(-0.1, 0.1, size=2)
    corners = _quad(rng.uniform(0.62, 1.02), tilt, (shift[0], shift[1]))
    corners += rng.uniform(-0.075, 0.075, size=(4, 2))
    squeeze = rng.uniform(0.8, 1.0)
    corners[:, 0] = 0.5 + shift[0] + (corners[:, 0] - 0.5 - shift[0]) * squeeze
    return Shot(
        setting=setting,
        corners=corners,
        turn=float(rng.uniform(-0.5, 0.5)),
        light=float(rng.uniform(-1, 1)),
        gain=float(rng.uniform(0.72, 1.15)),
        warmth=float(rng.uniform(-1, 1)),
        slope=(float(rng.uniform(-0.22, 0.22)), float(rng.uniform(-0.18, 0.18))),
        occluded=bool(rng.uniform() < 0.4),
        blur=float(max(0.0, rng.uniform(-0.8, 1.0))),
        noise=float(rng.uniform(0, 6)),
    )


def _quad(scale: float, tilt: float, shift: tuple[float, float]) -> Floats:
    """Corners of the canvas, from the upper left clockwise, after scaling, turning and moving it."""
    half = scale / 2
    corners = np.array([(-half, -half), (half, -half), (half, half), (-half, half)])
    cos, sin = np.cos(tilt), np.sin(tilt)
    return np.asarray(corners @ np.array([[cos, sin], [-sin, cos]]) + 0.5 + np.array(shift))


def _placed(product: Product, shot: Shot, size: int) -> Image.Image:
    """The product in its pose, RGBA at the size of the photo, drawn and posed at twice that size."""
    px = size * _SUPERSAMPLING
    corners = shot.corners * px
    # A small product needs no large canvas, and only the box around its canvas has to be warped.
    side = max(8, round(np.linalg.norm(corners - np.roll(corners, 1, axis=0), axis=1).max()))
    sprite = draw_product(product, side, turn=shot.turn, light=shot.light)
    left, top = (max(0, int(low)) // _SUPERSAMPLING for low in corners.min(axis=0))
    right, bottom = (min(size, int(high) // _SUPERSAMPLING + 1) for high in corners.max(axis=0))
    box = (_SUPERSAMPLING * (right - left), _SUPERSAMPLING * (bottom - top))
    warp = _perspective(corners - (_SUPERSAMPLING * left, _SUPERSAMPLING * top), side)
    posed = sprite.transform(box, Image.Transform.PERSPECTIVE, warp, Image.Resampling.BILINEAR)
    placed = Image.new("RGBA", (size, size))
    placed.paste(posed.reduce(_SUPERSAMPLING), (left, top))
    return placed


def _perspective(corners: Floats, side: int) -> list[float]:
    """The eight coefficients that take a point of the photo back to the canvas, as Pillow wants them."""
    canvas = np.array([(0, 0), (side, 0), (side, side), (0, side)], dtype=np.float64)
    rows = []
    for (x, y), (u, v) in zip(corners, canvas, strict=True):
        rows.append([x, y, 1, 0, 0, 0, -u * x, -u * y])
        rows.append([0, 0, 0, x, y, 1, -v * x, -v * y])
    return [float(c) for c in np.linalg.solve(np.array(rows), canvas.ravel())]


def _backdrop(rng: _Rng, shot: Shot, size: int) -> FloatArray:
    if shot.setting == "paper":
        return np.full((size, size, 3), _PAPER, dtype=np.float32)
    return _BACKDROPS[shot.setting](rng, size)


def _laid_over(picture: FloatArray, product: Image.Image, shadow: Image.Image) -> Image.Image:
    """Darken the backdrop by the product's soft shadow, then put the product before it."""
    shade = 1 - np.asarray(shadow).astype(np.float32)[..., None] * np.float32(_SHADOW_DEPTH / 255)
    photo = Image.fromarray((picture * shade).astype(np.uint8))
    photo.paste(product, mask=product)
    return photo


def _shadow(alpha: Image.Image, light: float, lying: bool) -> Image.Image:
    """Place of the shadow: beside a thing that lies or hangs, at the foot of one that stands."""
    size = alpha.width
    if lying:
        beside = (1, 0, 0.05 * light * size, 0, 1, -0.03 * size)
        moved = alpha.transform(alpha.size, Image.Transform.AFFINE, beside)
        return moved.filter(ImageFilter.BoxBlur(size * 0.022))
    box = alpha.getbbox()
    foot = box[3] if box else size
    # Squashed to a quarter of its height about the foot, and slanted away from the light.
    fallen = (1, -2 * light, 2 * light * foot, 0, 4, -3 * foot - 0.02 * size)
    cast = alpha.transform(alpha.size, Image.Transform.AFFINE, fallen, Image.Resampling.BILINEAR)
    return cast.filter(ImageFilter.BoxBlur(size * 0.03))


def _occlude(rng: _Rng, photo: Image.Image) -> None:
    """Put a blurred ball or bar from one side before the scene; it hides at most about a fifth."""
    size = photo.width
    mask = Image.new("L", photo.size)
    pen = ImageDraw.Draw(mask)
    angle = rng.uniform(0, 2 * np.pi)
    edge = 0.5 + 0.5 * np.array([np.cos(angle), np.sin(angle)])
    if rng.uniform() < 0.5:
        r = rng.uniform(0.12, 0.24)
        pen.ellipse((np.concatenate([edge - r, edge + r]) * size).tolist(), fill=255)
    else:
        lean = angle + rng.uniform(0.9, 1.4)
        along = np.array([np.cos(lean), np.sin(lean)])
        ends = np.concatenate([edge + 0.5 * along, edge - 0.9 * along]) * size
        pen.line(ends.tolist(), fill=255, width=max(1, round(rng.uniform(0.04, 0.1) * size)))
    red, green, blue = (rng.uniform(50, 200) + rng.uniform(-30, 30, size=3)).astype(int).tolist()
    photo.paste((red, green, blue), mask=mask.filter(ImageFilter.BoxBlur(size * 0.008)))


def _developed(rng: _Rng, photo: Image.Image, shot: Shot) -> Image.Image:
    """Apply the light of the scene, then the camera's noise and blur."""
    size = photo.width
    ramp = np.linspace(-1, 1, size, dtype=np.float32)
    fall = 1 + np.float32(shot.slope[0]) * ramp[None] + np.float32(shot.slope[1]) * ramp[:, None]
    tone = np.array([1 + 0.11 * shot.warmth, 1.0, 1 - 0.13 * shot.warmth]) * shot.gain
    grain = rng.standard_normal((size, size), dtype=np.float32) * np.float32(shot.noise)
    planes = (
        np.clip(np.asarray(band) * (fall * np.float32(gain)) + grain, 0, 255).astype(np.uint8)
        for band, gain in zip(photo.split(), tone, strict=True)
    )
    developed = Image.merge("RGB", [Image.fromarray(plane) for plane in planes])
    return developed.filter(ImageFilter.BoxBlur(shot.blur * size / 224)) if shot.blur else developed
