"""In-shop Clothes Retrieval: the authors' query and gallery, and where the images lie."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from vicinal.models.errors import DatasetError
from vicinal.training.datasets import LabelledFile, list_images
from vicinal.training.datasets.layouts import DatasetConfig

Configure = Callable[..., DatasetConfig]


def test_training_rows_have_items_and_categories(configure: Configure) -> None:
    assert list_images(configure("in_shop")).files == (
        LabelledFile(
            "Img/img/WOMEN/Dresses/id_00000002/02_1_front.jpg", "id_00000002", super_label="WOMEN/Dresses"
        ),
        LabelledFile("Img/img/MEN/Denim/id_00000080/01_1_front.jpg", "id_00000080", super_label="MEN/Denim"),
    )


def test_the_test_part_is_query_and_gallery(configure: Configure) -> None:
    test = list_images(configure("in_shop", split="test"))
    assert [(file.label, file.role) for file in test.files] == [
        ("id_00000001", "query"),
        ("id_00000001", "gallery"),
    ]


def test_images_may_lie_beside_the_list(configure: Configure) -> None:
    config = configure("in_shop")
    (config.root / "Img/img").rename(config.root / "img")
    (config.root / "Eval/list_eval_partition.txt").rename(config.root / "list_eval_partition.txt")
    assert [file.path.partition("/")[0] for file in list_images(config).files] == ["img", "img"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("img/MEN/Denim/id_1/a.jpg id_1 validation", "evaluation_status 'validation'"),
        ("img/MEN/a.jpg id_1 train", "image_name 'img/MEN/a.jpg', expected img/<gender>/"),
    ],
)
def test_a_row_of_another_form_is_named(configure: Configure, line: str, reason: str) -> None:
    config = configure("in_shop")
    with (config.root / "Eval/list_eval_partition.txt").open("a") as stream:
        stream.write(f"{line}\n")
    with pytest.raises(DatasetError, match=f"line 7: {reason}"):
        list_images(config)
