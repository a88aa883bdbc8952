"""Java's `sasl.jaas.config`: one login module and its options, as Kafka's clients have them."""

from __future__ import annotations

import re

from kafka_actors.errors import ConfigError

__all__ = ["login_of"]

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
}
_OPTIONAL = {"scope"}
_KNOWN = "a PlainLoginModule, ScramLoginModule or OAuthBearerLoginModule"


def login_of(option: str, jaas: str) -> dict[str, str]:
    """User and password, or client id and secret, of a login module under their names here.

        org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";

    The module's package makes no difference: shaded ones have others. Raises `ConfigError` about `option`, which
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
    given = _options(option, module, jaas[words.end() :])
    if unknown := sorted(given.keys() - names.keys()):
        raise ConfigError(option, f"has {unknown[0]!r} for {module}: {', '.join(names)} are read from it")
    if missing := [name for name in names if name not in given and name not in _OPTIONAL]:
        raise ConfigError(option, f"lacks {' and '.join(missing)} for {module}")
    return {names[name]: value for name, value in given.items()}


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
