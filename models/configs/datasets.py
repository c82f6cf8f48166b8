"""Where labelled images come from: one configuration class a layout, told apart by `kind`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "AuthoredConfig",
    "Cars196Config",
    "Cub200Config",
    "DatasetConfig",
    "DemoCatalogConfig",
    "FileDatasetConfig",
    "FolderConfig",
    "GroceryStoreConfig",
    "INaturalist2018Config",
    "InShopConfig",
    "ManifestConfig",
    "OmniglotConfig",
    "ProtocolConfig",
    "RevisitedConfig",
    "StanfordOnlineProductsConfig",
    "VehicleIdConfig",
]


class _Dataset(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ProtocolConfig(_Dataset):
    """A folder with `protocol.csv` and zip archives; see `models.datasets.protocol`."""

    kind: Literal["protocol"]
    root: Path
    split: str = "train"
    roles: tuple[str, ...] = ("train",)


class FolderConfig(_Dataset):
    """A folder with one subfolder a class."""

    kind: Literal["folder"]
    root: Path


class ManifestConfig(_Dataset):
    """A table of images beside them; see `models.datasets.manifest`.

    Attributes:
        root: The manifest's folder, which relative image paths start from.
        file: Name of the `.csv` or `.parquet` file in it.
        split: Rows whose column `split` says so; None takes every row.
        roles: Rows whose column `role` says one of these; None takes every row that is not `unused`.
    """

    kind: Literal["manifest"]
    root: Path
    file: Path = Path("manifest.csv")
    split: str | None = None
    roles: tuple[str, ...] | None = None


class DemoCatalogConfig(_Dataset):
    """Products of the demo catalog generator; the demo itself uses seed 0."""

    kind: Literal["demo_catalog"]
    seeds: tuple[int, ...] = Field(min_length=1)
    products: int = Field(60, ge=1)
    views: int = Field(8, ge=2)


class AuthoredConfig(_Dataset):
    """A published data set in the layout in which its authors ship it.

    Attributes:
        origin: Its name and its authors' page.
        root: The folder that its archive unpacks to.
    """

    origin: ClassVar[str]
    root: Path


class Cub200Config(AuthoredConfig):
    """CUB-200-2011, 200 species of birds: the folder with `images.txt`.

    Attributes:
        split_by: `class` is the split of metric learning, classes 1 to 100 and 101 to 200; `image` is the
            authors' own of `train_test_split.txt`, in which both parts have every class.
        crop: Cut each image to the authors' bounding box.
    """

    origin: ClassVar[str] = "CUB-200-2011 from https://www.vision.caltech.edu/datasets/cub_200_2011/"
    kind: Literal["cub200"]
    split: Literal["train", "test"] = "train"
    split_by: Literal["class", "image"] = "class"
    crop: bool = False


class Cars196Config(AuthoredConfig):
    """Cars-196: `car_ims` with `cars_annos.mat`, or `cars_train` and `cars_test` with `devkit`.

    Attributes:
        split_by: `class` is the split of metric learning, classes 1 to 98 and 99 to 196; `image` is the
            authors' own, in which both parts have every class.
        crop: Cut each image to the authors' bounding box.
    """

    origin: ClassVar[str] = "Cars-196 from https://ai.stanford.edu/~jkrause/cars/car_dataset.html"
    kind: Literal["cars196"]
    split: Literal["train", "test"] = "train"
    split_by: Literal["class", "image"] = "class"
    crop: bool = False


class StanfordOnlineProductsConfig(AuthoredConfig):
    """Stanford Online Products: the folder with `Ebay_train.txt`."""

    origin: ClassVar[str] = "Stanford Online Products from https://cvgl.stanford.edu/projects/lifted_struct/"
    kind: Literal["sop"]
    split: Literal["train", "test"] = "train"


class InShopConfig(AuthoredConfig):
    """DeepFashion In-shop Clothes Retrieval: the folder with `Eval/list_eval_partition.txt`.

    `test` has the authors' roles `query` and `gallery`.
    """

    origin: ClassVar[str] = (
        "DeepFashion In-shop Clothes Retrieval from "
        "https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion/InShopRetrieval.html"
    )
    kind: Literal["in_shop"]
    split: Literal["train", "test"] = "train"


class INaturalist2018Config(AuthoredConfig):
    """iNaturalist 2018: the folder with `train_val2018` and, for its split by class, the lists
    in `Inat_dataset_splits`.
    """

    origin: ClassVar[str] = (
        "iNaturalist 2018 from https://github.com/visipedia/inat_comp/tree/master/2018, "
        "its split by class from https://www.robots.ox.ac.uk/~vgg/research/smooth-ap/"
    )
    kind: Literal["inaturalist2018"]
    split: Literal["train", "test"] = "train"


class VehicleIdConfig(AuthoredConfig):
    """PKU VehicleID: the folder with `image` and `train_test_split`.

    Attributes:
        test_size: Vehicles of the test list; the papers' small, medium and large are 800, 1600 and 2400.
        gallery_seed: None gives test images no part, so that they are searched among themselves; a number
            draws one image a vehicle for the gallery, as the authors do, and makes the others queries.
    """

    origin: ClassVar[str] = "PKU VehicleID from https://www.pkuml.org/resources/pku-vehicleid.html"
    kind: Literal["vehicle_id"]
    split: Literal["train", "test"] = "train"
    test_size: Literal[800, 1600, 2400, 3200, 6000, 13164] = 800
    gallery_seed: int | None = Field(None, ge=0)


class RevisitedConfig(AuthoredConfig):
    """Revisited Oxford or Paris: the folder with `gnd_<kind>.pkl` and `jpg`.

    Its ground truth belongs to single queries, not to classes: it can be measured on, not trained on.
    """

    origin: ClassVar[str] = "Revisited Oxford and Paris from http://cmp.felk.cvut.cz/revisitop/"
    kind: Literal["roxford5k", "rparis6k"]


class OmniglotConfig(AuthoredConfig):
    """Omniglot: the folder with `images_background` and `images_evaluation`, unpacked or as zip archives.

    `train` is the background set, `test` the evaluation set.
    """

    origin: ClassVar[str] = "Omniglot from https://github.com/brendenlake/omniglot"
    kind: Literal["omniglot"]
    split: Literal["train", "test"] = "train"


class GroceryStoreConfig(AuthoredConfig):
    """Grocery Store: the folder with `train.txt` and `classes.csv`, or the repository around it.

    The authors split by image: every part has every class. Images of one part are often of one visit to a
    shop, which makes searching a part among itself easy; search `train` with `test` instead.
    """

    origin: ClassVar[str] = "Grocery Store from https://github.com/marcusklasson/GroceryStoreDataset"
    kind: Literal["grocery_store"]
    split: Literal["train", "val", "test"] = "train"


FileDatasetConfig = (
    ProtocolConfig
    | FolderConfig
    | ManifestConfig
    | Cub200Config
    | Cars196Config
    | StanfordOnlineProductsConfig
    | InShopConfig
    | INaturalist2018Config
    | VehicleIdConfig
    | OmniglotConfig
    | GroceryStoreConfig
)
DatasetConfig = Annotated[FileDatasetConfig | DemoCatalogConfig, Field(discriminator="kind")]
