"""Photo of a product: pose, backdrop, light, shadow, things in the way, and the camera's faults."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from vicinal.calibration.arrays import FloatArray, Floats
from vicinal.models.demo_catalog import furnishings, vessels, wearables
from vicinal.models.demo_catalog.easel import Easel
from vicinal.models.demo_catalog.products import Product

_SUPERSAMPLING = 2
_MIN_SIZE, _MAX_SIZE = 16, 2048
_PAPER = 245.0
_BROWN = (112.0, 76.0, 46.0)
_SHADOW_DEPTH = 0.5
_LYING_KINDS = frozenset({"cushion", "headphones", "tshirt", "umbrella", "watch"})
_SETTINGS = ("studio", "room", "surface")
_Rng = np.random.Generator
DRAWINGS: dict[str, Callable[[Easel, Product], None]] = {
    "backpack": wearables.backpack,
    "book": furnishings.book,
    "bottle": vessels.bottle,
    "can": vessels.can,
    "chair": furnishings.chair,
    "clock": furnishings.clock,
    "cushion": furnishings.cushion,
    "headphones": wearables.headphones,
    "jar": vessels.jar,
    "kettle": vessels.kettle,
    "lamp": furnishings.lamp,
    "mug": vessels.mug,
    "planter": vessels.planter,
    "sneaker": wearables.sneaker,
    "teapot": vessels.teapot,
    "tshirt": wearables.tshirt,
    "umbrella": wearables.umbrella,
    "watch": wearables.watch,
}


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
    still = Shot("paper", _quad(0.92, 0.0, (0.0, -0.01)), 0.0, -0.5, 1.0, 0.0, (0.0, 0.0), False, 0.0, 0.0)
    shot = still if view == 0 else draw_shot(rng)
    placed = _placed(product, shot, size)
    lying = shot.setting == "surface" or product.kind in _LYING_KINDS
    shadow = _shadow(placed.getchannel("A"), shot.light, lying)
    photo = _laid_over(_backdrop(rng, shot, size), placed, shadow)
    if view == 0:
        return photo
    if shot.occluded:
        _occlude(rng, photo)
    return _developed(rng, photo, shot)


def draw_product(product: Product, px: int, *, turn: float = 0.0, light: float = -0.5) -> Image.Image:
    """The product alone, upright, as (px, px) RGBA on a transparent ground, lit from -1, left, to 1."""
    easel = Easel(product, px, turn=turn, light=light)
    DRAWINGS[product.kind](easel, product)
    return easel.image


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
    if shot.setting == "studio":
        return _studio(rng, size)
    return _room(rng, size) if shot.setting == "room" else _surface(rng, size)


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


def _studio(rng: _Rng, size: int) -> FloatArray:
    """A paper sweep: one soft color, or a gradient between two."""
    if rng.uniform() >= 0.6:
        return np.broadcast_to(_soft_color(rng), (size, size, 3)).copy()
    angle = rng.uniform(0, 2 * np.pi)
    ramp = np.linspace(-0.7, 0.7, size, dtype=np.float32)
    across, down = ramp[None] * np.float32(np.cos(angle)), ramp[:, None] * np.float32(np.sin(angle))
    return _mixed(np.clip(0.5 + across + down, 0, 1), _soft_color(rng), _soft_color(rng))


def _surface(rng: _Rng, size: int) -> FloatArray:
    """A textured surface seen from above: wood, cloth, tiles or stone."""
    return _SURFACES[int(rng.integers(len(_SURFACES)))](rng, size)


def _room(rng: _Rng, size: int) -> FloatArray:
    """A table before a wall, with blurred things in the back."""
    picture = _with_clutter(rng, _studio(rng, size))
    horizon = round(size * rng.uniform(0.58, 0.74))
    picture[horizon:] = _surface(rng, size)[: size - horizon]
    picture[horizon : horizon + max(1, size // 100)] *= 0.72
    return picture


def _smooth_noise(rng: _Rng, size: int, columns: int, rows: int) -> FloatArray:
    """Noise in [0, 1] of shape (size, size) with about `columns` x `rows` hills."""
    seeds = rng.random((rows, columns), dtype=np.float32)
    return np.asarray(Image.fromarray(seeds).resize((size, size), Image.Resampling.BICUBIC))


def _soft_color(rng: _Rng) -> FloatArray:
    """A muted wall color: products should stand out more often than not, yet not always."""
    gray = rng.uniform(95, 235)
    return np.clip(gray + rng.uniform(-28, 28, size=3), 30, 250).astype(np.float32)


def _mixed(t: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    return (low + t[..., None] * (high - low)).astype(np.float32)


def _wood(rng: _Rng, size: int) -> FloatArray:
    planks = int(rng.integers(3, 7))
    plank = np.arange(size) * planks // size
    grain = np.float32(0.5) * (_smooth_noise(rng, size, 5, 90) + _smooth_noise(rng, size, 3, 24))
    shade = rng.random(planks, dtype=np.float32)[plank][:, None]
    tone = np.float32(0.35) * shade + np.float32(0.65) * grain
    dark = (np.multiply(_BROWN, rng.uniform(0.6, 1.35)) + rng.uniform(-9, 9, size=3)).astype(np.float32)
    picture = _mixed(tone, dark, np.minimum(dark * 1.75, 240))
    seams = np.flatnonzero(np.diff(plank)) + 1
    picture[seams] *= 0.6
    return picture if rng.uniform() < 0.6 else np.ascontiguousarray(picture.swapaxes(0, 1))


def _cloth(rng: _Rng, size: int) -> FloatArray:
    """A weave with threads in two close shades, sometimes with wide colored bands."""
    thread = np.sin(np.arange(size, dtype=np.float32) * np.float32(rng.uniform(180, 300) / size))
    weave = 0.5 + 0.25 * (thread[None] + thread[:, None]) * 0.7 + 0.3 * (_smooth_noise(rng, size, 6, 6) - 0.5)
    base = _soft_color(rng)
    picture = _mixed(weave, base * 0.8, np.minimum(base * 1.12, 255))
    if rng.uniform() < 0.4:
        band = np.mod(np.arange(size) * rng.uniform(3, 8) / size, 1) < rng.uniform(0.15, 0.5)
        picture[:, band] = 0.55 * picture[:, band] + 0.45 * _soft_color(rng)
    return picture


def _tiles(rng: _Rng, size: int) -> FloatArray:
    count = int(rng.integers(3, 7))
    index = np.arange(size) * count // size
    shade = rng.random((count, count), dtype=np.float32)[index[:, None], index[None]]
    second = (index[:, None] + index[None]) % 2 if rng.uniform() < 0.5 else np.zeros((1, 1), dtype=np.int64)
    base, other = _soft_color(rng), _soft_color(rng)
    picture: FloatArray = np.where(second[..., None] == 1, other, base) * (0.9 + 0.16 * shade[..., None])
    joint = np.mod(np.arange(size) * count, size) < count * max(1, size // 90)
    picture[joint] = picture[:, joint] = base * 0.62
    return picture


def _stone(rng: _Rng, size: int) -> FloatArray:
    hills = _smooth_noise(rng, size, 4, 4) + 0.5 * _smooth_noise(rng, size, 11, 11)
    veins = np.clip(1 - np.abs(hills - 0.75) * 9, 0, 1) * 0.6
    base = _soft_color(rng)
    return _mixed(veins, np.minimum(base * 1.1, 250), base * 0.6)


def _with_clutter(rng: _Rng, picture: FloatArray) -> FloatArray:
    """Blurred boxes and balls in the back, as out-of-focus neighbors of the product."""
    size = len(picture)
    image = Image.fromarray(picture.astype(np.uint8))
    pen = ImageDraw.Draw(image)
    for _ in range(int(rng.integers(0, 6))):
        x, y = rng.uniform(-0.1, 1.0, size=2) * size
        w, h = rng.uniform(0.08, 0.38, size=2) * size
        red, green, blue = rng.integers(50, 220, size=3).tolist()
        draw = pen.ellipse if rng.uniform() < 0.5 else pen.rectangle
        draw((x, y, x + w, y + h), fill=(red, green, blue))
    blurred = image.filter(ImageFilter.BoxBlur(size * float(rng.uniform(0.008, 0.03))))
    return np.asarray(blurred).astype(np.float32)


_SURFACES: tuple[Callable[[_Rng, int], FloatArray], ...] = (_wood, _cloth, _tiles, _stone)
