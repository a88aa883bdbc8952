"""Contexts by the `ssl_` options, while the files change."""

import logging
import os
import shutil

import pytest
from fakes.secure import KEY_PASSWORD, make_files

from kafka_actors.config import ClientConfig, build, resolved
from kafka_actors.errors import ConfigError
from kafka_actors.net.security.tls import context_of


@pytest.fixture
def files(tmp_path):
    return make_files(tmp_path)


def test_files_that_are_just_being_renewed_end_no_client(files, tmp_path, caplog):
    copy = tmp_path / "renewed.pem"
    shutil.copy(files.server, copy)
    config = build(ClientConfig, {"security_protocol": "SSL", "ssl_certfile": str(copy)})
    first = context_of(config)
    copy.write_text("half a certifi")
    assert context_of(config) is first
    (warning,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert warning.getMessage().startswith("ssl_certfile: can't be used: ")
    shutil.copy(files.expired, copy)
    os.utime(copy, ns=(1, 1))
    assert context_of(config) is not first


def test_what_never_could_be_loaded_is_refused(files, tmp_path):
    config = build(ClientConfig, {"security_protocol": "SSL", "ssl_certfile": files.ca})
    with pytest.raises(ConfigError, match="ssl_certfile: can't be used"):
        context_of(config)


def test_the_password_of_a_key_may_be_a_reference_and_is_looked_up_with_the_key(files, tmp_path):
    file = tmp_path / "password"
    file.write_text(KEY_PASSWORD)
    config = resolved(
        build(
            ClientConfig,
            {
                "security_protocol": "SSL",
                "ssl_certfile": files.certificate,
                "ssl_keyfile": files.key,
                "ssl_password": f"${{file:{file}}}",
            },
        )
    )
    assert context_of(config) is context_of(config)
    file.write_text("wrong")
    os.utime(files.key, ns=(1, 1))
    used = context_of(config)
    file.write_text(KEY_PASSWORD)
    assert context_of(config) is not used
