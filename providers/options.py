"""What a user may set, as frozen models: one for each scheme, one for transfers.

Unknown fields and bad values are errors that name the field. Options that hold literal
secrets pickle them only while a process is being spawned (a DataLoader worker, say); any
other pickle drops them, and whoever uses the copy is told which option is missing.
"""

from __future__ import annotations

import logging
from multiprocessing import context
from typing import TYPE_CHECKING, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    model_validator,
)

from providers.errors import SettingsError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "GCSOptions",
    "HttpOptions",
    "LocalOptions",
    "OSSOptions",
    "Options",
    "S3Options",
    "TransferOptions",
]

_log = logging.getLogger(__name__)

MIB = 1 << 20
KIB = 1 << 10

# What goes into a header as it is.
_WORD = r"^[!-~]+$"
_KMS_KEY = r"^projects/[^/\s]+/locations/[^/\s]+/keyRings/[^/\s]+/cryptoKeys/[^/\s]+$"


class _Settings(BaseModel):
    """Frozen, strict about names, with errors that read well."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SettingsError(_explain(type(self), error)) from None


def _explain(model: type[BaseModel], error: ValidationError) -> str:
    """Say in one line which fields are wrong and what is allowed."""
    faults = []
    for fault in error.errors(include_url=False, include_input=False):
        name = ".".join(str(part) for part in fault["loc"])
        if not name:
            faults.append(fault["msg"].removeprefix("Value error, "))
        elif fault["type"] == "extra_forbidden":
            faults.append(f"no option {name!r}; the options are {', '.join(model.model_fields)}")
        else:
            faults.append(f"option {name!r}: {fault['msg']}")
    return f"{model.__name__}: {'; '.join(faults)}"


class Options(_Settings):
    """What every scheme's options share.

    Attributes:
        pickle_secrets: keep literal secrets in every pickle (Ray and its like need it);
            without it they travel only into processes being spawned.
    """

    pickle_secrets: bool = False

    _dropped: tuple[str, ...] = PrivateAttr(default=())

    @property
    def dropped(self) -> tuple[str, ...]:
        """Names of the secret options that a pickle left behind."""
        return self._dropped

    def __getstate__(self) -> dict[Any, Any]:
        """Leave literal secrets out unless a process is being spawned."""
        state = super().__getstate__()
        if self.pickle_secrets or context.get_spawning_popen() is not None:
            return state
        secrets = tuple(n for n, v in state["__dict__"].items() if isinstance(v, SecretStr))
        kept = {n: None if n in secrets else v for n, v in state["__dict__"].items()}
        private = {**(state["__pydantic_private__"] or {}), "_dropped": self._dropped or secrets}
        return {**state, "__dict__": kept, "__pydantic_private__": private}

    def __setstate__(self, state: dict[Any, Any]) -> None:
        """Restore, and say in the log which secrets did not come along."""
        super().__setstate__(state)
        if self._dropped:
            _log.warning(
                "%s arrived without %s: secrets are pickled only into processes being spawned; "
                "credentials now come from this process's environment "
                "(pickle_secrets=True keeps them)",
                type(self).__name__,
                ", ".join(self._dropped),
            )


class LocalOptions(Options):
    """Options of ``file://``.

    Attributes:
        root: directory that keys cannot leave; default: the directory part of the URI.
        follow_links: whether links that lead out of the root are followed for reading.
    """

    root: str | None = None
    follow_links: bool = True


class HttpOptions(Options):
    """What the options of stores that are reached over HTTP share.

    Attributes:
        ca_file: file or directory of the certificates to trust; default: what the cloud's own
            SDK reads (``AWS_CA_BUNDLE``, ``REQUESTS_CA_BUNDLE``), then ``SSL_CERT_FILE``,
            ``CURL_CA_BUNDLE``, the system's, certifi's.
        verify_tls: False trusts any certificate; for a trial on one's own machine.
        client_certificate: PEM file that this client shows.
        client_key: PEM file of its key, where ``client_certificate`` does not hold it.
        proxy: ``http://host:port`` of a proxy; empty: none; default: what ``HTTPS_PROXY``,
            ``HTTP_PROXY``, ``ALL_PROXY`` and ``NO_PROXY`` say.
        http2: offer HTTP/2 for reads; by default 1.1, one request a connection at a time.
    """

    ca_file: str | None = None
    verify_tls: bool = True
    client_certificate: str | None = None
    client_key: str | None = None
    proxy: str | None = None
    http2: bool = False


class S3Options(HttpOptions):
    """Options of ``s3://``: Amazon S3 and compatible stores.

    Attributes:
        endpoint: URL of a compatible store; default: what boto3 resolves (Amazon).
        region: for example ``eu-central-1``; default: boto3's own chain.
        addressing_style: ``auto`` is virtual-hosted on Amazon, path on other endpoints.
        profile: profile of the AWS config files.
        access_key_id: explicit credentials; default: boto3's whole chain.
        secret_access_key: goes with ``access_key_id``.
        session_token: goes with temporary credentials.
        anonymous: send requests unsigned.
        checksums: send and ask for the service's own checksums; default: on Amazon only.
        storage_class: of what is written, ``INTELLIGENT_TIERING`` say; default: the service's.
        sse: how the service encrypts what is written; default: as the bucket is set.
        sse_kms_key_id: key for ``aws:kms`` and ``aws:kms:dsse``; default: the account's own.
        sse_bucket_key: whether ``aws:kms`` asks for one key for many objects, which costs fewer
            calls to KMS; default: as the bucket is set.
        conditional_put: overrides the limit of that name.
        equal_parts: overrides the limit of that name.
    """

    endpoint: str | None = None
    region: str | None = None
    addressing_style: Literal["auto", "path", "virtual"] = "auto"
    profile: str | None = None
    access_key_id: str | None = None
    secret_access_key: SecretStr | None = None
    session_token: SecretStr | None = None
    anonymous: bool = False
    checksums: bool | None = None
    storage_class: str | None = Field(None, pattern=_WORD)
    sse: Literal["AES256", "aws:kms", "aws:kms:dsse"] | None = None
    sse_kms_key_id: str | None = Field(None, pattern=_WORD)
    sse_bucket_key: bool | None = None
    conditional_put: bool | None = None
    equal_parts: bool | None = None

    @model_validator(mode="after")
    def _check_encryption(self) -> Self:
        if self.sse_kms_key_id is not None and self.sse not in {"aws:kms", "aws:kms:dsse"}:
            raise ValueError("sse_kms_key_id goes with sse='aws:kms' or 'aws:kms:dsse'")
        if self.sse_bucket_key is not None and self.sse != "aws:kms":
            raise ValueError("sse_bucket_key goes with sse='aws:kms'")
        return self


class GCSOptions(HttpOptions):
    """Options of ``gs://``.

    Attributes:
        endpoint: URL of an emulator or private endpoint; default: ``STORAGE_EMULATOR_HOST``,
            else Google's.
        project: project that is billed and named in requests.
        credentials_file: a service-account key or other credentials file; default:
            Application Default Credentials.
        access_token: a literal OAuth2 token, not refreshed.
        anonymous: send requests unsigned; always so on an emulator.
        storage_class: of what is written, ``NEARLINE`` say; default: the bucket's.
        kms_key_name: key that encrypts what is written,
            ``projects/P/locations/L/keyRings/R/cryptoKeys/K``; default: the bucket's.
        conditional_put: overrides the limit of that name.
        equal_parts: overrides the limit of that name.
    """

    endpoint: str | None = None
    project: str | None = None
    credentials_file: str | None = None
    access_token: SecretStr | None = None
    anonymous: bool = False
    storage_class: str | None = Field(None, pattern=_WORD)
    kms_key_name: str | None = Field(None, pattern=_KMS_KEY)
    conditional_put: bool | None = None
    equal_parts: bool | None = None


class OSSOptions(HttpOptions):
    """Options of ``oss://``: Alibaba Cloud OSS.

    Attributes:
        endpoint: ``https://oss-cn-hangzhou.aliyuncs.com`` say; default: ``OSS_ENDPOINT``, else
            made from the region.
        region: ``cn-hangzhou`` say; default: ``OSS_REGION``, else read off the endpoint.
        access_key_id: explicit credentials; default: ``OSS_ACCESS_KEY_ID`` and its siblings.
        access_key_secret: goes with ``access_key_id``.
        security_token: goes with temporary credentials.
        signature_version: ``v4``, or ``v1`` for old private deployments.
        cname: the endpoint is a domain bound to the bucket; no bucket goes before it.
        anonymous: send requests unsigned.
        storage_class: of what is written, ``IA`` say; default: the bucket's.
        sse: how the service encrypts what is written; default: as the bucket is set.
        sse_kms_key_id: key for ``KMS``; default: the account's own.
        conditional_put: overrides the limit of that name.
        equal_parts: overrides the limit of that name.
    """

    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    access_key_secret: SecretStr | None = None
    security_token: SecretStr | None = None
    signature_version: Literal["v4", "v1"] = "v4"
    cname: bool = False
    anonymous: bool = False
    storage_class: str | None = Field(None, pattern=_WORD)
    sse: Literal["AES256", "KMS", "SM4"] | None = None
    sse_kms_key_id: str | None = Field(None, pattern=_WORD)
    conditional_put: bool | None = None
    equal_parts: bool | None = None

    @model_validator(mode="after")
    def _check_encryption(self) -> Self:
        if self.sse_kms_key_id is not None and self.sse != "KMS":
            raise ValueError("sse_kms_key_id goes with sse='KMS'")
        return self


class TransferOptions(_Settings):
    """How bytes travel: one object for a dataset, a reader, a writer.

    Attributes:
        max_in_flight: most requests of one stream under way at once.
        adaptive: have fewer under way where size and latency need no more (Little's law), and
            share a machine's worth of them among its DataLoader workers; False: always
            ``max_in_flight``, but for throttling.
        max_connections: most open connections of the process to one store.
        max_bytes_in_flight: most bytes asked for and not yet consumed.
        prefetch_objects: most objects read ahead of the consumer.
        part_size_bytes: size of a multipart upload's parts.
        max_parts_in_flight: most parts of one object sent at once, each over a connection of its
            own. Clouds cap a connection: at 25 MB/s to 100 MB/s each, 32 carry 0.8 to 3 GB/s,
            what a link of 10 to 25 Gbit/s does. A writer holds one part more than these; 1: only
            the part that is being filled, and then sent.
        max_unsent_bytes: most bytes that the writers of this process hold in parts, shared evenly
            as they come and go; by default 32 parts under way and one that fills. Each writer
            may have two parts in any case.
        range_size_bytes: size of one ranged read of a large object.
        multipart_threshold_bytes: smaller objects are written by one put.
        read_ahead_bytes: most bytes that a reader of one object has under way or holds while it
            is read in sequence; 0: it never reads ahead. 32 MiB are 16 ranges of 2 MiB at once.
        lazy_above_bytes: larger samples are read by ranges on demand.
        max_gap_bytes: unwanted bytes read to save a request when ranges lie close.
        connect_timeout_seconds: for a connection to be made.
        first_byte_timeout_seconds: for an answer to begin, and between its bytes.
        low_speed_bytes_per_second: a body slower than this for ``low_speed_seconds`` is broken
            off and resumed.
        low_speed_seconds: whole seconds; never cuts in before ``first_byte_timeout_seconds``.
        completion_timeout_seconds: for completing an upload or a compose.
        max_attempts: attempts of one operation, the first included.
        give_up_after_seconds: for all attempts and waits of one operation.
        verify: whether whole objects are compared with the checksum that the service gives.
            ``auto``: where it is a CRC, which costs 0.1 to 0.5 s/GB; ``all``: SHA and MD5 too,
            up to 1.7 s/GB; ``none``: lengths only. What could not be compared is counted as
            ``unverified_reads``.
        decode_content: unpack objects stored with ``Content-Encoding: gzip`` when they are
            read whole; by default they come as stored.
        hedge: send a read again that is slower than 95 of 100 others, and take whichever
            answer comes first; costs up to 5 % more requests.
    """

    max_in_flight: int = Field(256, ge=1)
    adaptive: bool = True
    max_connections: int = Field(512, ge=1)
    max_bytes_in_flight: int = Field(256 * MIB, ge=1)
    prefetch_objects: int = Field(512, ge=1)
    part_size_bytes: int = Field(16 * MIB, ge=1)
    max_parts_in_flight: int = Field(32, ge=1)
    max_unsent_bytes: int = Field(528 * MIB, ge=1)
    range_size_bytes: int = Field(8 * MIB, ge=1)
    multipart_threshold_bytes: int = Field(16 * MIB, ge=1)
    read_ahead_bytes: int = Field(32 * MIB, ge=0)
    lazy_above_bytes: int = Field(64 * MIB, ge=0)
    max_gap_bytes: int = Field(256 * KIB, ge=0)
    connect_timeout_seconds: float = Field(5.0, gt=0)
    first_byte_timeout_seconds: float = Field(20.0, gt=0)
    low_speed_bytes_per_second: int = Field(KIB, ge=0)
    low_speed_seconds: int = Field(20, ge=1)
    completion_timeout_seconds: float = Field(600.0, gt=0)
    max_attempts: int = Field(10, ge=1)
    give_up_after_seconds: float = Field(300.0, gt=0)
    verify: Literal["auto", "all", "none"] = "auto"
    decode_content: bool = False
    hedge: bool = False
