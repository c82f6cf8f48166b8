"""Names of galleries and aliases: what a name leads to, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from vicinal.indexer import Gallery, list_galleries
from vicinal.indexer.errors import (
    AliasNotFoundError,
    GalleryAliasedError,
    GalleryExistsError,
    GalleryNameError,
    GalleryNotFoundError,
)
from vicinal.indexer.storage.files import identity_of
from vicinal.indexer.storage.gallery_names import aliases, folder_of, remove_alias, require_free, set_alias
from vicinal.indexer.transfer.moving import copy_gallery


@pytest.fixture
def root(live_gallery: Gallery) -> Path:
    """Two galleries, `shoes` and `boots`."""
    copy_gallery(live_gallery, "boots")
    return live_gallery.path.parent


def test_an_alias_leads_to_its_gallery_and_moves_at_once(root: Path) -> None:
    assert folder_of(root, "shop") == root / "shop"
    set_alias(root, "shop", "shoes")
    assert (folder_of(root, "shop"), aliases(root)) == (root / "shoes", {"shop": "shoes"})
    set_alias(root, "shop", "boots")
    assert (folder_of(root, "shop"), aliases(root)) == (root / "boots", {"shop": "boots"})
    assert Gallery(root / "boots").aliases == ["shop"]
    remove_alias(root, "shop")
    assert (folder_of(root, "shop"), aliases(root)) == (root / "shop", {})
    assert [gallery.name for gallery in list_galleries(root)] == ["boots", "shoes"]


def test_an_alias_of_an_alias_stands_for_the_gallery(root: Path) -> None:
    set_alias(root, "shop", "shoes")
    set_alias(root, "store", "shop")
    set_alias(root, "shop", "boots")
    assert aliases(root) == {"shop": "boots", "store": "shoes"}


def test_an_alias_is_no_gallery_of_its_own(root: Path) -> None:
    set_alias(root, "shop", "shoes")
    assert [gallery.name for gallery in list_galleries(root)] == ["boots", "shoes"]


def test_a_link_to_another_disk_is_a_gallery(root: Path, tmp_path: Path) -> None:
    (root / "boots").rename(tmp_path / "elsewhere")
    (root / "boots").symlink_to(tmp_path / "elsewhere")
    assert aliases(root) == {}
    assert [gallery.name for gallery in list_galleries(root)] == ["boots", "shoes"]
    with pytest.raises(GalleryExistsError):
        set_alias(root, "boots", "shoes")


def test_the_name_of_a_gallery_is_never_made_an_alias(root: Path) -> None:
    with pytest.raises(GalleryExistsError, match=r"^gallery 'boots' exists: choose another name$"):
        set_alias(root, "boots", "shoes")
    assert folder_of(root, "boots") == root / "boots"


def test_a_name_that_is_an_alias_is_taken(root: Path) -> None:
    set_alias(root, "shop", "shoes")
    with pytest.raises(GalleryExistsError, match=r"^'shop' is an alias of 'shoes': choose another name$"):
        require_free(root, "shop")


def test_what_a_stopped_index_left_is_no_gallery_and_is_not_replaced(root: Path) -> None:
    (root / "hats" / "staging").mkdir(parents=True)
    with pytest.raises(
        GalleryExistsError, match=r"^an index of gallery 'hats' was begun: finish it, remove "
    ):
        require_free(root, "hats")
    assert (root / "hats" / "staging").is_dir()


def test_an_alias_of_nothing_is_refused(root: Path) -> None:
    with pytest.raises(GalleryNotFoundError, match=r"^there is no gallery 'hats'$"):
        set_alias(root, "shop", "hats")
    with pytest.raises(AliasNotFoundError, match=r"^there is no alias 'shop'$"):
        remove_alias(root, "shop")
    with pytest.raises(AliasNotFoundError):
        remove_alias(root, "shoes")
    assert Gallery.open(root / "shoes").activation is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", "..", "a/b", "/etc", "Shop", "a" * 65, "-a"])
def test_a_name_is_never_a_path(root: Path, name: str) -> None:
    for refused in (
        lambda: folder_of(root, name),
        lambda: set_alias(root, name, "shoes"),
        lambda: set_alias(root, "shop", name),
        lambda: require_free(root, name),
    ):
        with pytest.raises(GalleryNameError, match="is no gallery name: use up to 64"):
            refused()
    with pytest.raises(AliasNotFoundError):
        remove_alias(root, name)


def test_a_gallery_that_clients_know_by_an_alias_is_not_deleted(root: Path) -> None:
    set_alias(root, "shop", "shoes")
    with pytest.raises(GalleryAliasedError, match="clients know gallery 'shoes' as 'shop': let another"):
        Gallery(root / "shoes").delete()
    set_alias(root, "shop", "boots")
    Gallery(root / "shoes").delete()
    assert [gallery.name for gallery in list_galleries(root)] == ["boots"]


def test_without_a_folder_there_are_no_aliases(tmp_path: Path) -> None:
    assert aliases(tmp_path / "none") == {}


def test_an_identity_is_given_once(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
    assert identity_of(first) == identity_of(first)
    assert identity_of(first) != identity_of(second)
    first.rename(tmp_path / "c")
    assert identity_of(tmp_path / "c") != identity_of(second)
