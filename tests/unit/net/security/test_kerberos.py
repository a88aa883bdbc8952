"""What Kerberos's errors mean for a connection: with a stand-in for the library, which only raises.

The real one is in tests/integration/test_security_kerberos.py.
"""

import sys
from types import SimpleNamespace

import pytest

from kafka_actors.config import ClientConfig, build
from kafka_actors.errors import ConnectionFailedError, SaslError
from kafka_actors.net.security import kerberos

BASE = -1765328384
"""Where krb5_err.et begins to count."""


class GSSError(Exception):
    maj_code = 0xD0000

    def __init__(self, number):
        super().__init__(number)
        self.min_code = (BASE + number) % 2**32

    def get_all_statuses(self, code, major):
        return ["said"]


@pytest.mark.parametrize(
    ("number", "kind", "tries"),
    [
        (29, ConnectionFailedError, 4),  # KRB5KDC_ERR_SVC_UNAVAILABLE
        (156, ConnectionFailedError, 4),  # KRB5_KDC_UNREACH
        (220, ConnectionFailedError, 4),  # KRB5_REALM_CANT_RESOLVE
        (7, SaslError, 1),  # KRB5KDC_ERR_S_PRINCIPAL_UNKNOWN
        (32, SaslError, 1),  # KRB5KRB_AP_ERR_TKT_EXPIRED
    ],
)
def test_a_kdc_that_can_not_be_reached_is_tried_again_as_a_broker(monkeypatch, number, kind, tries):
    asked = []

    class Context:
        complete = False

        def __init__(self, **_):
            pass

        def step(self, _):
            asked.append(1)
            raise GSSError(number)

    library = SimpleNamespace(
        exceptions=SimpleNamespace(GSSError=GSSError),
        NameType=SimpleNamespace(hostbased_service=0),
        MechType=SimpleNamespace(kerberos=0),
        Name=lambda *_, **__: SimpleNamespace(canonicalize=lambda _: "name"),
        SecurityContext=Context,
    )
    monkeypatch.setitem(sys.modules, "gssapi", library)
    monkeypatch.setattr(kerberos.time, "sleep", lambda _: None)
    config = build(ClientConfig, {})
    with pytest.raises(kind, match=r"^GSSAPI: kafka@broker: said") as caught:
        next(kerberos.kerberos(config, "broker"))
    assert caught.value.retriable is (kind is ConnectionFailedError)
    assert len(asked) == tries
