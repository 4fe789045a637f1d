"""Object store settings by the names people have them under: obstore's, fsspec's, PyArrow's and Hadoop's."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakebed.errors import InvalidOption
from lakebed.secrets import is_secret_of_storage
from lakebed.storage.base import Location


def _names_in(text: str) -> list[str]:
    return text.split()


_S3 = {
    **dict.fromkeys(("access_key_id", "key", "access_key", "username", "fs.s3a.access.key"), "access_key_id"),
    **dict.fromkeys(("secret_access_key", "secret", "secret_key", "fs.s3a.secret.key"), "secret_access_key"),
    **dict.fromkeys(("session_token", "token", "fs.s3a.session.token"), "session_token"),
    **dict.fromkeys(("endpoint", "endpoint_url", "endpoint_override", "fs.s3a.endpoint"), "endpoint"),
    **dict.fromkeys(("region", "region_name", "default_region", "fs.s3a.endpoint.region"), "region"),
    **dict.fromkeys(("skip_signature", "anon", "anonymous"), "skip_signature"),
    **dict.fromkeys(("virtual_hosted_style_request", "force_virtual_addressing"), "virtual_hosted_style_request"),
    **dict.fromkeys(("request_payer", "requester_pays"), "request_payer"),
}
_S3_PLAIN = _names_in("""aws_endpoint_url_s3 checksum_algorithm conditional_put container_credentials_relative_uri
    container_credentials_full_uri container_authorization_token_file disable_tagging disable_bulk_delete
    imdsv1_fallback metadata_endpoint role_arn role_session_name s3_express server_side_encryption
    sse_bucket_key_enabled sse_customer_key_base64 sse_kms_key_id sts_endpoint unsigned_payload
    web_identity_token_file""")
_GCS = {
    **dict.fromkeys(("service_account", "service_account_path"), "service_account"),
    **dict.fromkeys(
        (
            "application_credentials",
            "google.cloud.auth.service.account.json.keyfile",
            "fs.gs.auth.service.account.json.keyfile",
        ),
        "application_credentials",
    ),
    **dict.fromkeys(("bearer_token", "access_token", "token"), "bearer_token"),
    **dict.fromkeys(("skip_signature", "anon", "anonymous"), "skip_signature"),
    **dict.fromkeys(("base_url", "endpoint", "endpoint_url", "endpoint_override"), "base_url"),
    "service_account_key": "service_account_key",
}
_AZURE = {
    **dict.fromkeys(("account_name", "storage_account_name", "account"), "account_name"),
    **dict.fromkeys(("account_key", "access_key", "storage_account_key"), "account_key"),
    **dict.fromkeys(("sas_key", "sas_token"), "sas_key"),
    **dict.fromkeys(("token", "bearer_token"), "token"),
    **dict.fromkeys(("endpoint", "endpoint_url", "account_host"), "endpoint"),
    **dict.fromkeys(("skip_signature", "anon", "anonymous"), "skip_signature"),
    **dict.fromkeys(("tenant_id", "authority_id"), "tenant_id"),
}
_AZURE_PLAIN = _names_in("""client_id client_secret authority_host use_emulator use_fabric_endpoint msi_endpoint
object_id
    msi_resource_id federated_token_file use_azure_cli disable_tagging fabric_token_service_url fabric_workload_host
    fabric_session_token fabric_cluster_identifier encryption_key credential_type""")
_CLIENT = frozenset(
    _names_in("""allow_http allow_invalid_certificates connect_timeout http2_only pool_idle_timeout
    pool_max_idle_per_host proxy_url proxy_ca_certificate proxy_excludes root_certificate read_timeout timeout
    user_agent""")
)
_LAKEBED_OPTIONS = frozenset({"max_retries", "retry_timeout", "read_block", "read_cache", "upload_part"})

_NAMES: dict[str, dict[str, str]] = {
    "s3": {**_S3, **{name: name for name in _S3_PLAIN}},
    "gs": _GCS,
    "az": {**_AZURE, **{name: name for name in _AZURE_PLAIN}},
}
_PREFIXES = {"s3": ("aws_",), "gs": ("google_", "gcs_"), "az": ("azure_storage_", "azure_")}
_HADOOP = {"s3": ("fs.s3a.", "fs.s3."), "gs": ("fs.gs.", "google.cloud."), "az": ("fs.azure.", "fs.abfs.", "fs.abfss.")}
_TRUE = frozenset({"true", "1", "yes", "on"})


@dataclass(frozen=True, slots=True)
class ObjectSettings:
    """The settings with which a store is opened. `store` and `client` are obstore's own settings; they are never
    printed."""

    kind: str
    bucket: str
    prefix: str
    store: Mapping[str, str | bool] = field(repr=False)
    client: Mapping[str, str | bool] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    tuning: Mapping[str, int] = field(default_factory=dict)
    account: str = ""


def object_settings(location: Location, options: Mapping[str, str]) -> ObjectSettings:
    """The options of one object store, sorted by their use. Raises `InvalidOption` for an unknown name, with the
    nearest known one."""
    kind = "az" if location.scheme in ("abfs", "abfss") else location.scheme
    store: dict[str, str | bool] = {}
    client: dict[str, str | bool] = {}
    tuning: dict[str, int] = {}
    https = True
    bucket, account = location.authority, ""
    if kind == "az":
        bucket, _, host = location.authority.partition("@")
        account = host.partition(".")[0]
    for option, value in options.items():
        name = option.removeprefix("spark.hadoop.")
        if name in _LAKEBED_OPTIONS:
            tuning[name] = _integer(name, value)
        elif name.lower() in _CLIENT:
            client[name.lower()] = _flag(value)
        elif name == "fs.s3a.connection.ssl.enabled":
            https = value.lower() in _TRUE
        elif name == "fs.s3a.path.style.access":
            store["virtual_hosted_style_request"] = value.lower() not in _TRUE
        elif name == "connection_string" and kind == "az":
            store.update(_connection_string(value))
        elif name.startswith("fs.azure.account.key"):
            store["account_key"] = value
        elif store_option := _option_name(kind, name):
            store[store_option] = _flag(value)
        elif not name.startswith(_HADOOP[kind]):  # Hadoop's other settings tune Hadoop's own client
            raise _unknown(kind, option)
    if account:
        store["account_name"] = account
    _fit_endpoint(kind, store, client, https)
    if store.get("skip_signature") is False:
        del store["skip_signature"]
    secrets = tuple(v for k, v in (*options.items(), *_environment(kind)) if is_secret_of_storage(k) and len(v) >= 4)
    account = str(store.get("account_name", "")) or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
    return ObjectSettings(kind, bucket, location.path, store, client, secrets, tuning, account if kind == "az" else "")


def _option_name(kind: str, name: str) -> str | None:
    names = _NAMES[kind]
    if name in names:
        return names[name]
    lower = name.lower()
    for prefix in _PREFIXES[kind]:
        if lower.startswith(prefix) and lower.removeprefix(prefix) in names:
            return names[lower.removeprefix(prefix)]
    return names.get(lower)


def _unknown(kind: str, option: str) -> InvalidOption:
    every = [*_NAMES[kind], *_CLIENT, *_LAKEBED_OPTIONS]
    near = difflib.get_close_matches(option, every, n=1)
    return InvalidOption(
        f"no storage option {option!r} for {kind}:// storage",
        hint=f"did you mean {near[0]!r}?" if near else "see the storage page of the documentation for the names",
        context={"option": option},
    )


def _fit_endpoint(kind: str, store: dict[str, str | bool], client: dict[str, str | bool], https: bool) -> None:
    """Convert the endpoint to obstore's form: add a missing scheme, and allow plain HTTP if it requests that."""
    name = "base_url" if kind == "gs" else "endpoint"
    endpoint = store.get(name)
    if isinstance(endpoint, str) and endpoint and "://" not in endpoint:
        endpoint = store[name] = f"{'https' if https else 'http'}://{endpoint}"
    from_environment = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    used = endpoint if isinstance(endpoint, str) else (from_environment if kind == "s3" else "")
    if used.startswith("http://"):
        client.setdefault("allow_http", True)


def _connection_string(text: str) -> dict[str, str]:
    parts = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
    names = {
        "AccountName": "account_name",
        "AccountKey": "account_key",
        "SharedAccessSignature": "sas_key",
        "BlobEndpoint": "endpoint",
    }
    return {names[k]: v for k, v in parts.items() if k in names}


def _environment(kind: str) -> list[tuple[str, str]]:
    start = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}[kind]
    return [(k, v) for k, v in os.environ.items() if k.startswith(start)]


def _flag(value: str) -> str | bool:
    lower = value.lower()
    return lower == "true" if lower in ("true", "false") else value


def _integer(name: str, value: str) -> int:
    if not value.isdigit():
        raise InvalidOption(f"the storage option {name} is {value!r}", hint="give a whole number")
    return int(value)
