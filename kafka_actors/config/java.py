"""Translates the options of Java's clients, names and values, into those of `kafka_actors.options`; among the values are Java's
forms of credentials: login modules (`sasl.jaas.config`), and key and trust stores.

PEM and PKCS12 stores are read, JKS is refused with the line that converts it.
"""

from __future__ import annotations

import re
import secrets
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kafka_actors.errors import ConfigError

from .security import check_beside_context

__all__ = ["FromJava", "from_java", "login_of", "without_effect"]

_OPTION = re.compile(r"""\s*([\w.]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([^\s;"']+))""")
_FLAGS = ("required", "requisite", "sufficient", "optional")
_CREDENTIALS = "sasl_oauthbearer_client_credentials_"
_MODULES = {
    "PlainLoginModule": {"username": "sasl_plain_username", "password": "sasl_plain_password"},
    "ScramLoginModule": {"username": "sasl_plain_username", "password": "sasl_plain_password"},
    "OAuthBearerLoginModule": {
        "clientId": _CREDENTIALS + "client_id",
        "clientSecret": _CREDENTIALS + "client_secret",
        "scope": "sasl_oauthbearer_scope",
    },
    "IAMLoginModule": {},
}
_IDENTITY = "sasl_identity"
_OF_IAM = {
    "awsProfileName": "profile_name",
    "awsRoleArn": "role_arn",
    "awsRoleSessionName": "role_session_name",
    "awsRoleExternalId": "role_external_id",
    "awsStsRegion": "sts_region",
}
"""Options of Amazon's login module, with the arguments of `kafka_actors.identity.AwsMsk`."""
_PASSED_OVER_IN_IAM = {"awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs"}
_OPTIONAL = {"scope", "clientId", "clientSecret"}
_KNOWN = "a PlainLoginModule, ScramLoginModule, OAuthBearerLoginModule or IAMLoginModule"

_PEM_MARK = b"-----BEGIN"
_JAVAS = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}
_DER = b"\x30"


def login_of(option: str, jaas: str) -> dict[str, Any]:
    """User and password, client id and secret, or the arguments of AWS's identity, of a login module under their names here.

        org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";

    The module's package is ignored, because shaded modules have other packages. Raises `ConfigError` about `option`, which
    never shows a value.
    """
    words = re.match(r"\s*([\w.$]+)\s+(\w+)(?=[\s;]|$)", jaas)
    module = words[1].rpartition(".")[2] if words else ""
    if module not in _MODULES or words is None or words[2].lower() not in _FLAGS:
        raise ConfigError(
            option,
            f"names {module or 'no module'}: the login of {_KNOWN} is read from it; for other mechanisms give their "
            "own options",
        )
    names = _MODULES[module]
    present = _options(option, module, jaas[words.end() :])
    identity = _identity_in(present) if module in ("IAMLoginModule", "OAuthBearerLoginModule") else {}
    if unknown := sorted(present.keys() - names.keys()):
        read = [*names, *_OF_IAM] if module == "IAMLoginModule" else names
        raise ConfigError(option, f"has {unknown[0]!r} for {module}: {', '.join(read)} are read from it")
    if missing := [name for name in names if name not in present and name not in _OPTIONAL]:
        raise ConfigError(option, f"lacks {' and '.join(missing)} for {module}")
    login: dict[str, Any] = {names[name]: value for name, value in present.items()}
    return {**login, _IDENTITY: identity} if identity else login


def _identity_in(present: dict[str, str]) -> dict[str, str]:
    """Takes the arguments of AWS's identity out of a module's options."""
    for name in _PASSED_OVER_IN_IAM:
        present.pop(name, None)
    return {ours: present.pop(name) for name, ours in _OF_IAM.items() if name in present}


def _options(option: str, module: str, text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    while match := _OPTION.match(text, at):
        value = next(part for part in (*match.groups()[1:], "") if part is not None)
        found[match[1]] = re.sub(r"\\(.)", r"\1", value) if match[4] is None else value
        at = match.end()
    if text[at:].strip() not in ("", ";"):
        raise ConfigError(
            option, f'can\'t be read: options of {module} look like name="value", with ; at the end'
        )
    return found


# ---------------------------------------------------------------- stores


def is_pem(option: str, path: str) -> bool:
    """Whether the file is PEM; a file that isn't is PKCS12, whatever the type option says: Java looks into it as well.

    Raises `ConfigError` about `option` for a file that can't be read, and for JKS.
    """
    head = _read(option, path)
    if head[:4] in _JAVAS:
        kind = _JAVAS[head[:4]]
        target = Path(path).with_suffix(".p12")
        raise ConfigError(
            option,
            f"is {path!r}, a {kind} store, which only Java reads; convert it: keytool -importkeystore "
            f"-srckeystore {path} -srcstoretype {kind} -destkeystore {target} -deststoretype PKCS12",
        )
    if _PEM_MARK in head:
        return True
    if head[:1] != _DER:
        raise ConfigError(option, f"is {path!r}: neither PEM nor PKCS12")
    return False


def add_trust(context: ssl.SSLContext, option: str, path: str, password: str | None) -> None:
    """Trusts the certificates of a PKCS12 store. Raises `ConfigError` about `option`."""
    _, certificate, others = _open(option, path, password)
    certificates = [each.certificate for each in others]
    if certificate is not None:
        certificates.append(certificate.certificate)
    if not certificates:
        raise ConfigError(option, f"is {path!r}: there is no certificate in it")
    context.load_verify_locations(cadata="".join(_pem_text(each) for each in certificates))


def add_keys(context: ssl.SSLContext, option: str, path: str, password: str | None) -> None:
    """Loads the key of a PKCS12 store and its certificates, for the client to show. Raises `ConfigError`."""
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
    )

    key, certificate, others = _open(option, path, password)
    if key is None or certificate is None:
        raise ConfigError(option, f"is {path!r}: there is no key with a certificate in it")
    # A chain can only be loaded from a file. While the file is there, it is encrypted by a password that nobody has.
    moment = secrets.token_bytes(32).hex().encode()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(moment))
    chain = _pem_text(certificate.certificate) + "".join(_pem_text(each.certificate) for each in others)
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(pem + chain.encode())
        file.flush()
        context.load_cert_chain(file.name, password=moment)


def _open(option: str, path: str, password: str | None) -> tuple[Any, Any, list[Any]]:
    """Key, its certificate, and the other certificates, as `cryptography` has them."""
    try:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise ConfigError(
            option, f"is {path!r}, a PKCS12 store, which needs the package cryptography: kafka-actors[spark]"
        ) from None
    try:
        store = load_pkcs12(_read(option, path), None if password is None else password.encode())
    except ValueError:
        raise ConfigError(
            option, f"is {path!r}: not a PKCS12 store, or its password is another one"
        ) from None
    return store.key, store.cert, list(store.additional_certs)


def _pem_text(certificate: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    text: str = certificate.public_bytes(Encoding.PEM).decode()
    return text


def _read(option: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(option, f"is {path!r}: {error.strerror or error}") from None


_JAAS = "sasl_jaas_config"
_ALGORITHM = "ssl_endpoint_identification_algorithm"
_TRUST, _TRUST_PASSWORD = "ssl_truststore_location", "ssl_truststore_password"
_KEYS, _KEYS_PASSWORD = "ssl_keystore_location", "ssl_keystore_password"
_KEY_PASSWORD = "ssl_key_password"
_PROTOCOLS = "ssl_enabled_protocols"
_ASSIGNORS = "partition_assignment_strategy"
_ASSIGNOR_CLASSES = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
_SYSTEM_DEFAULT = ("receive_buffer_bytes", "send_buffer_bytes")  # -1 in Java
_HANDLERS: dict[str, tuple[str, ...]] = {
    "sasl_login_callback_handler_class": ("OAuthBearerLoginCallbackHandler",),
    "sasl_client_callback_handler_class": ("OAuthBearerLoginCallbackHandler", "IAMClientCallbackHandler"),
    "sasl_oauthbearer_jwt_retriever_class": ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever"),
    "sasl_login_class": (),
}
"""Options that name Java classes, with the classes whose work is done here anyway."""
_PROVIDERS = {
    "IAMOAuthBearerLoginCallbackHandler": "kafka_actors.identity:AwsMsk",
    "GcpLoginCallbackHandler": "kafka_actors.identity:Google",
}
"""Amazon's and Google's classes that fetch a token, with the provider that does their work here."""
_ONLY_FALSE = ("partitioner_ignore_keys", "sasl_oauthbearer_header_urlencode")
_IMPLEMENTATIONS = (
    "sasl_oauthbearer_jwt_validator_class",
    "ssl_protocol",
    "ssl_provider",
    "ssl_keymanager_algorithm",
    "ssl_trustmanager_algorithm",
    "ssl_secure_random_implementation",
    "ssl_engine_factory_class",
    "security_providers",
)

_WITHOUT_EFFECT = frozenset(
    {
        "allow_auto_create_topics",
        "auto_include_jmx_reporter",
        "client_dns_lookup",
        "compression_gzip_level",
        "compression_lz4_level",
        "compression_zstd_level",
        "config_providers",
        "default_api_timeout_ms",
        "enable_metrics_push",
        "internal_leave_group_on_close",
        "internal_throw_on_fetch_stable_offset_unsupported",
        "max_poll_records",
        "metadata_max_idle_ms",
        "metadata_recovery_rebootstrap_trigger_ms",
        "metadata_recovery_strategy",
        "metric_reporters",
        "metrics_num_samples",
        "metrics_recording_level",
        "metrics_sample_window_ms",
        "partitioner_adaptive_partitioning_enable",
        "partitioner_availability_timeout_ms",
        "sasl_kerberos_kinit_cmd",
        "sasl_kerberos_min_time_before_relogin",
        "sasl_login_connect_timeout_ms",
        "sasl_login_read_timeout_ms",
        "sasl_oauthbearer_clock_skew_seconds",
        "sasl_oauthbearer_expected_audience",
        "sasl_oauthbearer_expected_issuer",
        "sasl_oauthbearer_scope_claim_name",
        "sasl_oauthbearer_sub_claim_name",
        "share_acknowledgement_mode",
        "transaction_two_phase_commit_enable",
    }
)
_ALSO_WITHOUT = (
    "config_providers_",
    "sasl_login_refresh_",
    "sasl_login_retry_",
    "sasl_kerberos_ticket_renew_",
    "sasl_oauthbearer_jwks_",
)


class FromJava(NamedTuple):
    """Options under the names of `ClientConfig`, and the Java name of each that had another one, for errors."""

    options: dict[str, Any]
    origins: dict[str, str]


def without_effect(name: str) -> bool:
    """Whether an option of Java's clients, with underscores, has no effect here, so that a config that has it is accepted."""
    return name in _WITHOUT_EFFECT or name.startswith(_ALSO_WITHOUT)


def from_java(options: Mapping[str, str]) -> FromJava:
    """Translates what has a counterpart; the rest stays, for `config.build` to know or refuse. Names have underscores.

    PEM and PKCS12 stores are read; unless a type says PEM, the content of a file tells. A PKCS12 store becomes an
    `ssl_context`. Raises `ConfigError` with the option's name in Java.
    """
    taken: dict[str, Any] = dict(options)
    origins: dict[str, str] = {}
    if _JAAS in taken:
        for ours, value in login_of(_JAAS, taken.pop(_JAAS)).items():
            _put(taken, origins, ours, _JAAS, value)
    _handlers(taken, origins)
    _protocols(taken)
    for name in _IMPLEMENTATIONS:
        taken.pop(name, None)  # the implementation of something, not its behaviour
    for name in _SYSTEM_DEFAULT:
        if taken.get(name, "").strip() == "-1":
            del taken[name]
    if _ASSIGNORS in taken:
        taken[_ASSIGNORS] = ",".join(_assignor(part.strip()) for part in taken[_ASSIGNORS].split(","))
    algorithm = taken.pop(_ALGORITHM, "https")
    if algorithm.strip().lower() not in ("https", ""):
        raise ConfigError(_ALGORITHM, f"is {algorithm!r}: accepts https or nothing")
    if not algorithm.strip():
        taken["ssl_check_hostname"] = "false"
        origins["ssl_check_hostname"] = _ALGORITHM
    _stores(taken, origins)
    return FromJava(taken, origins)


def _assignor(name: str) -> str:
    package, _, cls = name.rpartition(".")
    return _ASSIGNOR_CLASSES.get(cls, name) if package == "org.apache.kafka.clients.consumer" else name


def _put(taken: dict[str, Any], origins: dict[str, str], ours: str, theirs: str, value: Any) -> None:
    if ours in taken:
        raise ConfigError(theirs, f"is given beside {ours}, which means the same")
    taken[ours] = value
    origins[ours] = theirs


def _handlers(taken: dict[str, Any], origins: dict[str, str]) -> None:
    """Drops the classes that fetch a token as it is done here anyway, and refuses others, which can't run here."""
    for name, own in _HANDLERS.items():
        handler = taken.get(name, "").strip()
        if name == "sasl_login_callback_handler_class" and (
            provider := _PROVIDERS.get(handler.rpartition(".")[2])
        ):
            del taken[name]
            _put(taken, origins, "sasl_oauth_token_provider", name, provider)
            continue
        if handler.rpartition(".")[2] in own:
            taken.pop(name, None)
        elif handler:
            raise ConfigError(name, f"is {handler!r}: there is no JVM to run it in")
    for name in _ONLY_FALSE:
        if taken.pop(name, "false").strip().lower() != "false":
            raise ConfigError(name, "is not supported: accepts false")


def _protocols(taken: dict[str, Any]) -> None:
    listed = taken.pop(_PROTOCOLS, None)
    if listed is not None and "TLSV1.2" not in {part.strip().upper() for part in listed.split(",")}:
        raise ConfigError(_PROTOCOLS, f"is {listed!r}: TLS 1.2 and 1.3 are spoken, and can't be narrowed")


def _stores(taken: dict[str, Any], origins: dict[str, str]) -> None:
    trust, keys = taken.get(_TRUST), taken.get(_KEYS)
    types = {_TRUST: taken.pop("ssl_truststore_type", ""), _KEYS: taken.pop("ssl_keystore_type", "")}
    stores = [(name, path) for name, path in ((_TRUST, trust), (_KEYS, keys)) if path]
    pkcs12 = [
        name for name, path in stores if types[name].strip().upper() != "PEM" and not is_pem(name, path)
    ]
    if not pkcs12:
        _files(taken, origins)
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = str(taken.pop("ssl_check_hostname", "true")).lower() != "false"
    if trust is None:
        context.load_default_certs()
    elif _TRUST in pkcs12:
        add_trust(context, _TRUST, trust, taken.get(_TRUST_PASSWORD))
    else:
        _pem(_TRUST, lambda: context.load_verify_locations(trust))
    if keys is not None and _KEYS in pkcs12:
        add_keys(context, _KEYS, keys, taken.get(_KEYS_PASSWORD))
    elif keys is not None:
        _pem(_KEYS, lambda: context.load_cert_chain(keys, password=taken.get(_KEY_PASSWORD) or ""))
    for name in (_TRUST, _TRUST_PASSWORD, _KEYS, _KEYS_PASSWORD, _KEY_PASSWORD):
        taken.pop(name, None)
    check_beside_context(taken, f"the PKCS12 store of {pkcs12[0]}")
    taken["ssl_context"] = context
    origins["ssl_context"] = pkcs12[0]


def _files(taken: dict[str, Any], origins: dict[str, str]) -> None:
    """Takes PEM files; a key is in the same file as its certificate."""
    for location, password, ours in (
        (_TRUST, _TRUST_PASSWORD, "ssl_cafile"),
        (_KEYS, _KEYS_PASSWORD, "ssl_certfile"),
    ):
        if taken.get(location):
            _put(taken, origins, ours, location, taken.pop(location))
            taken.pop(password, None)  # PEM files have none
    if "ssl_certfile" in origins and _KEY_PASSWORD in taken:
        _put(taken, origins, "ssl_password", _KEY_PASSWORD, taken.pop(_KEY_PASSWORD))


def _pem(option: str, load: Any) -> None:
    try:
        load()
    except (OSError, ValueError) as error:
        raise ConfigError(option, f"can't be used: {getattr(error, 'reason', None) or error}") from None
