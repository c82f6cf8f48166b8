"""Settings: environment variables with the prefix `VICINAL_`, or a TOML file."""

from __future__ import annotations

import ipaddress
import os
import stat
from pathlib import Path
from typing import Annotated, Literal, get_args

from limits import parse_many
from pydantic import Field, IPvAnyNetwork, SecretStr, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from vicinal.indexer.engines import Engine
from vicinal.indexer.item_rules import readable
from vicinal.indexer.jobs.compaction import CompactionPolicy
from vicinal.indexer.jobs.retention import RetentionPolicy
from vicinal.indexer.storage.gallery_names import folder_of
from vicinal.models.bundle import ModelBundle, default_bundle_path
from vicinal.models.decoding import DecodeLimits
from vicinal.models.runtime import DEVICES, Device
from vicinal.service.errors import RequestError
from vicinal.service.known_names import check_file, check_variables
from vicinal.service.observability.logs import LogFormat, LogLevel
from vicinal.service.request_fields import RefineChoice
from vicinal.service.search.pipeline import Pipeline, service_pipeline
from vicinal.service.search.redis_link import RedisLink

Scope = Literal["search", "write", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

_FILE = Path("vicinal.toml")
_PREFIX = "VICINAL_"
# As browsers send them: in small letters, a name without a port, and an origin without a path.
_HOST = r"^(\*|(\*\.)?[a-z0-9._-]+|[0-9a-f:]+)$"
_ORIGIN = r"^(\*|[a-z][a-z0-9+.-]*://[^/?#@\sA-Z]+)$"


def _require_own(path: Path) -> None:
    """Refuse a file that another user has laid into a folder that anybody may write into."""
    try:
        owners = {path.lstat().st_uid, path.stat().st_uid} - {0, os.geteuid()}
    except OSError:
        # There is none, or it cannot be read, which is told where it is read.
        return
    folder = path.absolute().parent
    if owners and folder.stat().st_mode & stat.S_IWOTH:
        raise RequestError(
            f"'{path}' is of another user, in a folder that anybody may write into, '{folder}', and is not "
            "obeyed: remove it, or work in a folder of your own"
        )


def is_loopback(name: str) -> bool:
    """Tell whether a name or address always means this machine, whoever asks."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class Settings(BaseSettings):
    """All settings of the service; unknown variables and keys are refused, with what was probably meant.

    Attributes:
        data_dir: Folder that holds the galleries.
        home: Where the galleries of several replicas are at home: a folder that all of them see, or
            `s3://bucket/prefix`; `data_dir` follows it. Keys of a store come from its own variables, such as
            `AWS_ACCESS_KEY_ID`. Needs `database`. See docs/SCALE.md.
        database: Address of the PostgreSQL that keeps what several machines share, such as
            `postgresql://USER:PASSWORD@HOST/NAME`; without one it is in files of SQLite in `data_dir`.
        bundle: Directory of the model bundle; by default the one that ships with the package.
        device: Where the network runs, and the refiner over whole galleries: `cpu`, `cuda`, `cuda:N` or
            `auto`. `/readyz` names what is really in use.
        index_device: Where vector indexes are searched, neighbor lists made and the pairs of a calibration
            compared: `cpu`, `cuda`, `cuda:N`, or `auto`, a GPU that has room. `/readyz` names what is really
            in use.
        threads: Threads of the network; 0 for one a physical core.
        host: Address to listen on. Without API keys only loopback addresses are accepted.
        port: Port to listen on.
        workers: Processes that answer; each opens the bundle, all share the files of the galleries. With
            several, jobs have a process of their own, and `rate_limit` needs Redis.
        max_image_bytes: Largest accepted image in bytes; a larger one gets 413.
        max_image_pixels: Largest accepted image in pixels; a larger one gets 413.
        decode_memory_bytes: Memory that all images take together while they are decoded and made small, in
            bytes; who finds it taken waits. An image that needs more alone is decoded alone.
        decode_wait_seconds: Longest such wait of a search or an addition, in seconds; then it gets 429 with
            `Retry-After`. Jobs wait longer.
        max_request_bytes: Largest accepted body of a call that takes images or embeddings; others take 4 MiB.
        max_batch: Most queries of one batch search, and most images of one addition.
        max_embeddings: Most ready embeddings of one addition.
        max_limit: Largest `limit` of a search.
        pipeline: What `auto` stands for, as far as it is set; otherwise what the bundle's validation decided.
        refine: What is refined: `off`, `gallery`, `query` or `both`. `auto` follows the bundle's validation.
        refine_steps: Steps of the refiner; all of them without a value.
        compaction: When the live changes of a gallery are made a new version.
        retention: Which versions of a gallery stay after a compaction.
        api_keys: Scopes by key: `search`, `write` (items) and `admin` (galleries, versions, calibrations,
            jobs), besides the keys that `vicinal keys` makes. Without any key none is asked for.
        stored_keys: Whether the keys that `vicinal keys` makes count.
        open_metrics: Whether `/metrics`, which names galleries, is for everybody where calls need a key;
            otherwise it needs one with the scope `admin` for all galleries.
        allowed_hosts: Names that the server is asked for by, such as `search.example.com` or
            `*.example.com`, besides this machine's and the address that was connected to; others get 421.
            Without a value no other without API keys, and any with.
        cors_origins: Origins of other sites whose pages may call the API in a browser, such as
            `https://shop.example.com`; `*` for any, with API keys only. Changes and searches from other pages
            get 403.
        trusted_proxies: Addresses or networks of proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are
            believed; without a value nobody's are.
        max_wait_seconds: Longest wait of a search for a thread, in seconds; where it would be longer, 429.
        max_connections: Most connections at once, three quarters of one address while others want in; more
            get 503. Fewer where the process may not open so many files.
        request_seconds: Longest time of the headers of a request, and of its body, which gets a second more
            for every 16 KiB that came; then 408.
        shutdown_seconds: Longest time that a server which stops gives requests under way, in seconds.
        rate_limit: Requests of one key or address, such as `100/minute;5000/hour`; more get 429 with
            `Retry-After`. Without a value any number.
        sources_dir: Folder below which jobs may read images, wherever a manifest or a link points; without
            one they read none.
        allow_hub: Whether sources of jobs may be public data sets of the hub of Hugging Face,
            `hf:owner/name`.
        bundles_dir: Folder whose subfolders are further bundles: re-index jobs may use them, and a gallery
            that was made with one is searched with it, as with one in `bundles/` of `data_dir`.
        run_jobs: Whether the server works on jobs too, in a process beside it; else `vicinal worker` does.
        job_heartbeat_seconds: Seconds between two signs of life of a worker; after four without one another
            worker takes its job over.
        milvus_url: Address of the Milvus that finds candidates of versions with the index `milvus`, such as
            `http://USER:PASSWORD@HOST:19530`, or with a token in place of both. See docs/SCALE.md.
        keep_vectors: Where a replica has the vectors of a version on Milvus: `here`, in its data folder, or
            only in the `engine`, from which those of candidates are fetched.
        redis_url: Address of Redis, for the cache of query embeddings and rate limits.
        redis_timeout_seconds: Longest wait for an answer of Redis, in seconds.
        redis_retry_seconds: Seconds that Redis is left alone after it failed to answer.
        query_cache_entries: Most query embeddings kept in memory; 0 turns the cache off.
        query_cache_seconds: Seconds that Redis keeps a query embedding.
        keep_searches: Most searches of a gallery that servers keep, with a small picture of what was searched
            for, so that a person can say what was right; 0 keeps none. See docs/serving.md.
        keep_searches_days: Days that a search is kept.
        poll_seconds: Seconds between two looks of a server for changed galleries.
        check_mb_per_second: Most megabytes a second that a server reads to compare every byte of its
            galleries with what was written, in the background.
        log_level: Lowest level of what `vicinal serve` and `vicinal worker` log: `debug`, `info`, `warning`
            or `error`. Each request is a line of `info`, each probe one of `debug`.
        log_format: `json`, one object a line; `console`, for a person; `auto` for what standard error is.
        check_hours: Hours between two such checks of a gallery; the first begins when it is opened.
    """

    model_config = SettingsConfigDict(
        # Files of containers name variables that have no value.
        env_ignore_empty=True,
        env_prefix=_PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
    )

    data_dir: Path = Field(default_factory=lambda: Path.home() / ".vicinal")
    home: str | None = None
    database: SecretStr | None = None
    bundle: Path = Field(default_factory=default_bundle_path)
    device: Device = Field(default="auto", pattern=DEVICES)
    index_device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:[0-9]{1,2})?)$")
    threads: int = Field(default=0, ge=0)
    host: str = "127.0.0.1"
    port: int = Field(default=8321, ge=0, le=65_535)
    workers: int = Field(default=1, ge=1)
    max_image_bytes: int = Field(default=32 * 2**20, ge=1)
    max_image_pixels: int = Field(default=40_000_000, ge=1)
    decode_memory_bytes: int = Field(default=512 * 2**20, ge=1)
    decode_wait_seconds: float = Field(default=10.0, ge=0.0)
    max_request_bytes: int = Field(default=256 * 2**20, ge=1)
    max_batch: int = Field(default=64, ge=1)
    max_embeddings: int = Field(default=1000, ge=1)
    max_limit: int = Field(default=1000, ge=1)
    pipeline: Pipeline = Pipeline()
    refine: RefineChoice = "auto"
    refine_steps: int | None = Field(default=None, ge=1)
    compaction: CompactionPolicy = CompactionPolicy()
    retention: RetentionPolicy = RetentionPolicy()
    # An empty key would be the key of every request without one.
    api_keys: dict[Annotated[str, Field(min_length=1)], tuple[Scope, ...]] = Field(
        default_factory=dict, repr=False
    )
    stored_keys: bool = True
    open_metrics: bool = False
    allowed_hosts: tuple[Annotated[str, Field(pattern=_HOST)], ...] = ()
    cors_origins: tuple[Annotated[str, Field(pattern=_ORIGIN)], ...] = ()
    trusted_proxies: tuple[IPvAnyNetwork, ...] = ()
    max_wait_seconds: float = Field(default=2.0, gt=0.0)
    max_connections: int = Field(default=1000, ge=1)
    request_seconds: float = Field(default=20.0, gt=0.0)
    shutdown_seconds: int = Field(default=20, ge=1)
    rate_limit: str = ""
    sources_dir: Path | None = None
    allow_hub: bool = False
    bundles_dir: Path | None = None
    run_jobs: bool = True
    job_heartbeat_seconds: float = Field(default=5.0, gt=0.0)
    milvus_url: SecretStr | None = None
    keep_vectors: Literal["here", "engine"] = "here"
    # It may hold a password.
    redis_url: str | None = Field(default=None, repr=False)
    redis_timeout_seconds: float = Field(default=0.25, gt=0.0)
    redis_retry_seconds: float = Field(default=5.0, gt=0.0)
    query_cache_entries: int = Field(default=1024, ge=0)
    query_cache_seconds: int = Field(default=86_400, ge=1)
    keep_searches: int = Field(default=0, ge=0, le=20_000)
    keep_searches_days: float = Field(default=30.0, gt=0.0, le=3660.0)
    poll_seconds: float = Field(default=5.0, gt=0.0)
    check_mb_per_second: float = Field(default=200.0, gt=0.0)
    check_hours: float = Field(default=6.0, gt=0.0)
    log_level: LogLevel = "info"
    log_format: LogFormat = "auto"

    @field_validator("data_dir")
    @classmethod
    def _is_utf8(cls, folder: Path) -> Path:
        whole = str(folder.absolute())
        if readable(whole) != whole:
            raise ValueError(f"'{readable(whole)}' is not UTF-8 or holds a line break: take another folder")
        return folder

    @field_validator("rate_limit")
    @classmethod
    def _is_rate(cls, text: str) -> str:
        if text:
            parse_many(text)
        return text

    def open_link(self) -> RedisLink | None:
        """The link to Redis, or None when no address is set."""
        if self.redis_url is None:
            return None
        return RedisLink(
            self.redis_url,
            timeout_seconds=self.redis_timeout_seconds,
            retry_seconds=self.redis_retry_seconds,
        )

    def open_engine(self) -> Engine:
        """The engine at the address that is set, if any; nothing is asked of it before it is needed."""
        return Engine(None if self.milvus_url is None else self.milvus_url.get_secret_value())

    @property
    def has_home(self) -> bool:
        """Tell whether the data folder has a home, or is to be given one; see `galleries.home`."""
        return self.home is not None or (self.data_dir / "mirror" / "home.json").exists()

    def pipeline_for(self, bundle: ModelBundle) -> Pipeline:
        """Pipeline that `auto` stands for with a bundle."""
        return service_pipeline(self.pipeline, bundle, refine=self.refine, steps=self.refine_steps)

    @property
    def is_exposed(self) -> bool:
        """Tell whether others than this machine, or pages of any site, reach the server."""
        return "*" in self.cors_origins or not is_loopback(self.host)

    @property
    def audit_path(self) -> Path:
        """File that notes the changes made over HTTP."""
        return self.data_dir / "audit" / "audit.jsonl"

    @property
    def fetched_path(self) -> Path:
        """Folder of the bundles that `vicinal bundle get` fetches."""
        return self.data_dir / "bundles"

    @property
    def bundle_folders(self) -> list[Path]:
        """Folders whose subfolders are the bundles at hand."""
        folders = (self.bundles_dir, self.fetched_path, default_bundle_path().parent)
        return [one for one in dict.fromkeys(folders) if one is not None and one.is_dir()]

    @property
    def decode_limits(self) -> DecodeLimits:
        """Limits of a decoded image."""
        return DecodeLimits(
            max_bytes=self.max_image_bytes,
            max_pixels=self.max_image_pixels,
            memory_bytes=self.decode_memory_bytes,
            wait_seconds=self.decode_wait_seconds,
        )

    @property
    def galleries_path(self) -> Path:
        """Folder with one subfolder a gallery."""
        return self.data_dir / "galleries"

    def gallery_path(self, name: str) -> Path:
        """Folder of a gallery, or of what an alias stands for; no name leads out of `galleries_path`."""
        return folder_of(self.galleries_path, name)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments win over the environment, the environment over `vicinal.toml` in the working folder."""
        del dotenv_settings, file_secret_settings
        _require_own(_FILE)
        in_file = TomlConfigSettingsSource(settings_cls, _FILE)
        check_variables(settings_cls, os.environ, _PREFIX)
        check_file(settings_cls, in_file(), _FILE.name)
        return init_settings, env_settings, in_file
