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
)
from vicinal.indexer.storage.files import identity_of
from vicinal.indexer.storage.gallery_names import aliases, folder_of, remove_alias, require_free, set_alias
from vicinal.indexer.transfer.moving import copy_gallery, rename_gallery


@pytest.fixture
def root(galleries: Path, live_gallery: Gallery) -> Path:
    """Two galleries, `shoes` and `boots`, in a folder of their own or with a shared database."""
    assert live_gallery.path.parent == galleries
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


def test_aliases_of_earlier_releases_were_links(root: Path) -> None:
    for alias in ("shop", "store", "stall"):
        (root / alias).symlink_to("shoes")
    assert [gallery.name for gallery in list_galleries(root)] == ["boots", "shoes"]
    assert folder_of(root, "store") == root / "shoes"
    remove_alias(root, "stall")
    assert aliases(root) == {"shop": "shoes", "store": "shoes"}
    assert not any(path.is_symlink() for path in root.iterdir())


def test_a_renamed_gallery_keeps_its_aliases_and_what_is_remembered(root: Path) -> None:
    set_alias(root, "shop", "shoes")
    before = Gallery.open(root / "shoes").activation
    renamed = rename_gallery(Gallery(root / "shoes"), "slippers")
    assert (aliases(root), renamed.activation) == ({"shop": "slippers"}, before)
    assert [gallery.name for gallery in list_galleries(root)] == ["boots", "slippers"]
    require_free(root, "shoes")


def test_a_gallery_that_is_begun_is_in_no_list_and_its_name_is_taken(root: Path) -> None:
    identity_of(root / "hats")
    (root / "hats").mkdir(exist_ok=True)
    assert [gallery.name for gallery in list_galleries(root)] == ["boots", "shoes"]
    with pytest.raises(GalleryExistsError, match="was begun"):
        require_free(root, "hats")


def test_a_link_to_another_disk_is_a_gallery(live_gallery: Gallery, tmp_path: Path) -> None:
    root = live_gallery.path.parent
    copy_gallery(live_gallery, "boots")
    (root / "boots").rename(tmp_path / "elsewhere")
    (root / "boots").symlink_to(tmp_path / "elsewhere")
    assert aliases(root) == {}
    assert [gallery.name for gallery in list_galleries(root)] == ["boots", "shoes"]
    with pytest.raises(GalleryExistsError):
        set_alias(root, "boots", "shoes")


def test_a_name_is_never_a_path(root: Path) -> None:
    for name in ("", "..", "a/b", "/etc", "Shop"):
        for refused in (
            lambda name=name: folder_of(root, name),
            lambda name=name: set_alias(root, name, "shoes"),
            lambda name=name: set_alias(root, "shop", name),
            lambda name=name: require_free(root, name),
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
    require_free(root, "shoes")
    assert [gallery.name for gallery in list_galleries(root)] == ["boots"]
