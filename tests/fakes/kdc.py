"""A Kerberos realm of its own for a test: MIT's KDC as a process, with its database and keytabs in a directory.

    with Realm(directory) as realm:
        realm.add("alice")
        realm.login("alice", cache)  # a process with `realm.environment(cache)` is alice now

Needs Debian's krb5-kdc, krb5-admin-server and krb5-user; nothing of the system's own realm is read or written.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

import pytest
from waiting import slow_s

from kafka_actors.testing.node import free_ports
from kafka_actors.testing.watchdog import Watchdog

NAME = "KAFKA.TEST"
_HOST = "127.0.0.1"
_SBIN = ("/usr/sbin", "/usr/local/sbin", "/usr/local/opt/krb5/sbin")
_PACKAGES = ("krb5-kdc", "krb5-admin-server", "krb5-user", "libkrb5-dev")
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")

_KRB5_CONF = """
[libdefaults]
    default_realm = {realm}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    # Names are what they are called: no resolver has a say in which principal is asked for.
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
    ticket_lifetime = 1h
[realms]
    {realm} = {{
        kdc = {host}:{port}
    }}
[domain_realm]
    localhost = {realm}
    {host} = {realm}
"""

_KDC_CONF = """
[kdcdefaults]
    kdc_listen = {host}:{port}
    kdc_tcp_listen = {host}:{port}
[realms]
    {realm} = {{
        database_name = {directory}/principal
        key_stash_file = {directory}/stash
        acl_file = {directory}/acl
        max_life = 1h
        supported_enctypes = aes256-cts-hmac-sha1-96:normal aes128-cts-hmac-sha1-96:normal
    }}
[logging]
    kdc = FILE:{directory}/kdc.log
"""


def required() -> None:
    """Skips the test where no realm can be made; fails it where `CI` is set and the packages could be installed."""
    reason = _missing()
    if reason is None:
        return
    if os.environ.get("CI") and _installable():
        pytest.fail(f"GSSAPI is not to be skipped where CI is set: {reason}", pytrace=False)
    pytest.skip(reason)


def _missing() -> str | None:
    absent = [name for name in _PROGRAMS if _program(name) is None]
    if absent:
        return f"{', '.join(absent)} not found: apt-get install {' '.join(_PACKAGES)}"
    try:
        import gssapi  # noqa: F401
    except ImportError as error:
        return f"the package gssapi is missing ({error}): apt-get install libkrb5-dev; pip install gssapi"
    return None


def _installable() -> bool:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    command = ["apt-get", "install", "--simulate", *_PACKAGES]
    return subprocess.run(command, capture_output=True, timeout=slow_s(60), check=False).returncode == 0


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *_SBIN]))


class Realm:
    """A realm with no principals but its own, until `add` makes some. Gone when it is left, or its owner ends."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (self._port,) = free_ports(1)
        self._server: subprocess.Popen[bytes] | None = None
        self._watchdog: Watchdog | None = None

    def __enter__(self) -> Realm:
        self.directory.mkdir(parents=True, exist_ok=True)
        at = {"realm": NAME, "directory": self.directory, "host": _HOST, "port": self._port}
        (self.directory / "krb5.conf").write_text(_KRB5_CONF.format(**at))
        (self.directory / "kdc.conf").write_text(_KDC_CONF.format(**at))
        self._run("kdb5_util", "create", "-s", "-r", NAME, "-P", secrets.token_hex(16))
        self._watchdog = Watchdog()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        assert self._watchdog is not None
        self._watchdog.close()

    @property
    def krb5_conf(self) -> str:
        """The file that names this realm, for `KRB5_CONFIG` and Java's `java.security.krb5.conf`."""
        return str(self.directory / "krb5.conf")

    def keytab(self, principal: str) -> str:
        """The path of a principal's keytab."""
        return str(self.directory / f"{principal.replace('/', '-')}.keytab")

    def environment(self, cache: str) -> dict[str, str]:
        """Variables with which a process is in this realm, with its tickets in that file."""
        return {"KRB5_CONFIG": self.krb5_conf, "KRB5CCNAME": f"FILE:{cache}"}

    def start(self) -> None:
        """Starts the KDC; returns when it takes connections."""
        assert self._server is None
        assert self._watchdog is not None
        program = _program("krb5kdc")
        assert program is not None
        self._server = subprocess.Popen(
            [program, "-n", "-r", NAME], env=self._environment(), stderr=subprocess.DEVNULL
        )
        self._watchdog.watch(self._server.pid)
        end = time.monotonic() + slow_s(20)
        while not self._answers():
            if self._server.poll() is not None or time.monotonic() > end:
                log = self.directory / "kdc.log"
                raise RuntimeError(f"no KDC: {log.read_text() if log.exists() else 'it says nothing'}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Ends the KDC. Tickets that were given out stay good."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            assert self._watchdog is not None
            self._watchdog.forget(self._server.pid)
            self._server = None

    def add(self, principal: str) -> None:
        """Makes a principal with a random key, which is in its keytab."""
        self._kadmin(f"addprinc -randkey {principal}")
        self._kadmin(f"ktadd -k {self.keytab(principal)} {principal}")

    def new_key(self, principal: str) -> None:
        """Gives the principal a new key, which its keytab does not have."""
        self._kadmin(f"cpw -randkey {principal}")

    def login(self, principal: str, cache: str, seconds: int = 3600) -> None:
        """Gets a ticket with the principal's keytab, as `kinit` does, good for that long."""
        lifetime = f"{seconds}s"
        self._run("kinit", "-k", "-t", self.keytab(principal), "-c", cache, "-l", lifetime, principal)

    def _kadmin(self, query: str) -> None:
        said = self._run("kadmin.local", "-r", NAME, "-q", query)
        if " while " in said:  # it exits with 0 whatever happened
            raise RuntimeError(f"kadmin.local: {said}")

    def _answers(self) -> bool:
        try:
            socket.create_connection((_HOST, self._port), 1).close()
        except OSError:
            return False
        return True

    def _environment(self) -> dict[str, str]:
        profile = {"KRB5_KDC_PROFILE": str(self.directory / "kdc.conf")}
        return {**os.environ, "KRB5_CONFIG": self.krb5_conf, **profile}

    def _run(self, name: str, *args: str) -> str:
        """Runs one of the realm's programs; returns what it says on stderr."""
        program = _program(name)
        assert program is not None
        done = subprocess.run(
            [program, *args],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=slow_s(60),
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{name} {' '.join(args)}: {done.stdout}{done.stderr}")
        return done.stderr
