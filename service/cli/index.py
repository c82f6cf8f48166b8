"""`vicinal index`: embed a folder or manifest into a gallery, or index embeddings that are ready."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from vicinal.service.cli.console import console, errors, print_failures, print_json, progress_bar, say
from vicinal.service.cli.options import (
    BundleOption,
    DataDirOption,
    EmbeddingColumnOption,
    GalleryOption,
    HiddenOption,
    IdColumnOption,
    JsonOption,
    LabelColumnOption,
    LabelFromOption,
    PathColumnOption,
    PrefixOption,
    SpaceOption,
    check_bundle,
    command_line,
    conflict_rule,
    load_settings,
)
from vicinal.service.errors import RequestError
from vicinal.service.words import hygiene_lines, look_lines, number_of, search_words, unread_lines

if TYPE_CHECKING:
    from vicinal.indexer.gallery import Gallery
    from vicinal.indexer.jobs.index_plan import IndexResult
    from vicinal.indexer.sources import EmbeddingSource, Source, SourceLook, SourceOptions
    from vicinal.service.galleries.bundles import ServedBundle, ServedBundles

_STAGES = {"copy": "Copying", "embed": "Embedding", "neighbors": "Finding neighbors", "publish": "Publishing"}


SourceArgument = Annotated[
    str | None,
    typer.Argument(
        help="Folder of images, .csv, .tsv or .parquet manifest, .parquet files with images inside, alone or "
        "in a folder, .tar shards, bucket (s3://, gs://, az://), data set of the hub (hf:owner/name), or "
        "ready embeddings (.parquet, .lance, saved dataset of Hugging Face, .npz, .npy beside a .csv). "
        "Default: what the gallery holds."
    ),
]
ActivateOption = Annotated[
    bool,
    typer.Option(help="Search the new version at once, or leave it to `vicinal compare` and `use`."),
]
MaxFailuresOption = Annotated[
    int | None, typer.Option(min=0, help="Give up when more items than this cannot be read.")
]
ReplacesOption = Annotated[
    bool,
    typer.Option("--replace", help="Put items in the place of other sources' items with their ids."),
]
SkipsOption = Annotated[
    bool, typer.Option("--skip", help="Leave out items whose ids belong to other sources' items.")
]
DeleteOption = Annotated[
    bool, typer.Option("--delete", help="Remove items of this source that it does not list any more.")
]
RestoreOption = Annotated[
    bool, typer.Option("--restore", help="Bring back removed items that this source still lists.")
]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        metavar="cpu|cuda|cuda:N|auto",
        help="Where the network runs and neighbor lists are made, in place of VICINAL_DEVICE and "
        "VICINAL_INDEX_DEVICE; auto takes a GPU that can be used.",
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Say what the source holds, and write nothing.")
]


def index(
    gallery: GalleryOption,
    source: SourceArgument = None,
    data_dir: DataDirOption = None,
    bundle: BundleOption = None,
    index_kind: Annotated[
        str, typer.Option("--index", help="auto, Flat, SQ8, HNSW32, IVF1024,SQ8 and the like.")
    ] = "auto",
    activate: ActivateOption = True,
    max_failures: MaxFailuresOption = None,
    workers: Annotated[int, typer.Option(min=1, help="Threads that decode beside the network.")] = 2,
    device: DeviceOption = None,
    replaces: ReplacesOption = False,
    skips: SkipsOption = False,
    delete: DeleteOption = False,
    restore: RestoreOption = False,
    space: SpaceOption = None,
    prefix: PrefixOption = None,
    label_from: LabelFromOption = "auto",
    path_column: PathColumnOption = None,
    label_column: LabelColumnOption = None,
    id_column: IdColumnOption = None,
    embedding_column: EmbeddingColumnOption = None,
    include_hidden: HiddenOption = False,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Take what is new or changed in a source over into a gallery, while it is searched and changed.

    What the gallery holds stays, and is not embedded again; what was removed from it stays out. A run that
    was stopped goes on where it was when it is started again over the same files.
    """
    from vicinal.indexer.gallery import Gallery
    from vicinal.indexer.jobs.index_job import index_items
    from vicinal.indexer.sources import ANYWHERE, Source, SourceOptions
    from vicinal.service.galleries.bundles import ServedBundles
    from vicinal.service.galleries.uploads import require_parts

    on_conflict = conflict_rule(replaces=replaces, skips=skips)
    options = SourceOptions(
        prefix, label_from, path_column, label_column, id_column, embedding_column, ANYWHERE, include_hidden
    )
    about = {"--delete": delete, "--restore": restore, "--space": space is not None}
    _require_source(source, options, about, dry_run=dry_run)
    settings = load_settings(data_dir=data_dir, bundle=bundle, device=device, index_device=device)
    target, bundles = Gallery(settings.gallery_path(gallery)), ServedBundles(settings)
    is_ready = bool(space or target.space)
    if not dry_run:
        _require_devices(bundles, has_network=not is_ready)
    opened = _opened(source, options, is_ready=is_ready, whole=delete)
    other = None if bundles.own_space else bundle
    if opened is not None:
        require_parts(str(source), is_ready=not isinstance(opened, Source), space=space, bundle=other)
    if opened is not None:
        _print_look(opened.look(), as_json=json_output, is_all=dry_run)
    if dry_run:
        return
    served = _served(bundles, target, opened, space)
    check_bundle(bundle, bundles, target, served.bundle.manifest)
    stages = {**_STAGES, "embed": "Reading"} if served.bundle.manifest.space else _STAGES
    with _told_what_to_do(gallery), progress_bar() as update:
        result = index_items(
            target,
            opened.items if isinstance(opened, Source) else opened,
            served.embedder,
            source=None if opened is None else opened.name,
            on_conflict=on_conflict,
            delete=delete,
            restore=restore,
            index=index_kind,
            activate=activate,
            max_failures=max_failures,
            workers=workers,
            unread={} if opened is None else opened.unread,
            on_progress=lambda stage, done, total, *_: update(stages[stage], done, total),
        )
    if json_output:
        print_json(asdict(result))
        return
    print_build(gallery, result)
    if result.is_new and activate:
        _print_searches(target, served)
    elif result.is_new:
        words = ("compare", str(result.version), "--gallery", gallery)
        comparison = command_line(*words, data_dir=data_dir, bundle=bundle)
        say(f"Not searched yet: `{comparison}`, then `vicinal use`")


def _require_source(
    source: str | None, options: SourceOptions, others: dict[str, bool], *, dry_run: bool
) -> None:
    """Refuse what is about a source where there is none.

    Raises:
        RequestError: There is none, and an option speaks of it.
    """
    from vicinal.indexer.sources import ANYWHERE, SourceOptions

    for option, is_given in others.items():
        if source is None and is_given:
            raise RequestError(f"{option} is about a source: name it")
    if source is None and (dry_run or options != SourceOptions(None, "auto", access=ANYWHERE)):
        raise RequestError("name a source: without one the items that the gallery holds are indexed")


def _require_devices(bundles: ServedBundles, *, has_network: bool) -> None:
    """Refuse a GPU that was asked for and cannot be used, before a source is opened.

    Args:
        bundles: Bundles, with the settings.
        has_network: Whether images are embedded.

    Raises:
        BundleError: ONNX Runtime cannot use it.
        IndexDeviceError: Faiss cannot.
    """
    from vicinal.indexer.graph.gpu import faiss_gpus

    settings = bundles.settings
    if has_network and settings.device.startswith("cuda"):
        # ONNX Runtime does not tell before a network is opened there.
        _ = bundles.own
    faiss_gpus(settings.index_device)


def _opened(
    source: str | None, options: SourceOptions, *, is_ready: bool, whole: bool
) -> EmbeddingSource | Source | None:
    """What a source holds; None for what the gallery holds.

    Args:
        source: The source, if one was named.
        options: How it is read.
        is_ready: Whether a file that may hold ready embeddings does.
        whole: Refuse one of which a part cannot be read.
    """
    from vicinal.indexer.sources import open_source, place_of

    if source is None:
        return None
    opened = open_source(place_of(source), options, expects_embeddings=is_ready)
    return opened.require_whole() if whole else opened


def _print_look(look: SourceLook, *, as_json: bool, is_all: bool) -> None:
    """Say what a source holds, beside the result of the run or as all that is asked for."""
    if as_json and is_all:
        print_json(asdict(look))
        return
    for line in look_lines(look):
        say(line, to=errors if as_json else console)


def _served(
    bundles: ServedBundles, target: Gallery, opened: EmbeddingSource | Source | None, space: str | None
) -> ServedBundle:
    """What embeds the items, or is said to have embedded them."""
    from vicinal.indexer.gallery import Gallery

    if opened is None:
        Gallery.open(target.path)
    return bundles.resolve(target, opened, space=space)


@contextmanager
def _told_what_to_do(gallery: str) -> Iterator[None]:
    """Name the options where ids are taken, and say how a run that is stopped goes on."""
    from vicinal.indexer.errors import ItemExistsError

    try:
        yield
    except ItemExistsError as error:
        advice = "nothing was indexed: take --replace, --skip or --prefix"
        raise ItemExistsError(gallery, error.item_ids, advice, error.what) from error
    except KeyboardInterrupt:
        say("vicinal: stopped; what is finished is kept, and the same command goes on from there", to=errors)
        raise


def _print_searches(gallery: Gallery, served: ServedBundle) -> None:
    from vicinal.service.search.pipeline import ActivePipelineFile

    active = ActivePipelineFile(gallery.calibrations_path).resolve(served.pipeline, served.bundle)
    say(f"Searches: {search_words(active.pipeline, served.bundle)}")


def print_build(gallery: str, result: IndexResult) -> None:
    """Say what an index job made and what it found."""
    from vicinal.indexer.errors import named_ids

    counts = _counts(result)
    if not result.is_new:
        all_of_it = "all of it but what was removed" if result.left_out else "all of it"
        say(f"Nothing to do: gallery {gallery} holds {all_of_it} ({counts}), version {result.version} stays")
    else:
        rate = result.n_embedded / max(1e-9, result.seconds["embed"])
        speed = f", {rate:,.0f} {_source_of(result)}" if result.n_embedded else ""
        say(
            f"Gallery {gallery} version {result.version}: {number_of(result.n_items, 'item')} with "
            f"{number_of(result.n_labels, 'label')}, index {result.index}{speed}"
        )
        if result.counts != {"added": result.n_items}:
            say(f"  {counts}")
    if result.remark:
        say(f"  {result.remark}")
    if result.missing:
        n_missing = result.counts["missing"]
        gone = number_of(n_missing, "item of this source is", "items of this source are")
        advice = f"remove {'it' if n_missing == 1 else 'them'} with --delete"
        say(f"  {gone} gone: {named_ids(result.missing, n_missing)}; {advice}")
    if result.left_out:
        n_left_out = result.counts["left_out"]
        earlier = number_of(
            n_left_out, "item that was removed earlier was", "items that were removed earlier were"
        )
        advice = f"--restore brings {'it' if n_left_out == 1 else 'them'} back"
        say(f"  {earlier} left out: {named_ids(result.left_out, n_left_out)}; {advice}")
    print_failures(result.failures, "--json and the report")
    for line in unread_lines(result.unread):
        say(line)
    for line in hygiene_lines(result.hygiene):
        say(f"  {line}")


def _counts(result: IndexResult) -> str:
    """What became of the items: the usual outcomes in any case, the others where there are some."""
    from vicinal.indexer.jobs.sync.plan import SyncOutcome

    always = ("added", "changed", "unchanged", "missing") if result.counts else ()
    words = [
        f"{outcome.replace('_', ' ')} {result.counts.get(outcome, 0):,}"
        for outcome in get_args(SyncOutcome)
        if outcome in always or outcome in result.counts
    ]
    again = result.n_embedded - sum(result.counts.get(one, 0) for one in ("added", "changed", "replaced"))
    words += [f"embedded anew {again:,}"] if again > 0 else []
    return ", ".join(words) or f"kept {result.n_items:,}"


def _source_of(result: IndexResult) -> str:
    return "rows/s" if result.provider == "none" else f"images/s on {result.provider}"
