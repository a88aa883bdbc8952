"""Coverage-guided fuzzing of what `tests/property/test_fuzz.py` feeds at random: `make fuzz`, `make fuzz FUZZ=scram`.

Needs atheris (`pip install atheris`; Linux, Python up to 3.13). What ends a run lies in `.fuzz/` afterwards, and ends it
again with `python tests/fuzz.py TARGET FILE`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["kafka_actors", "assignors", "fakes"]):
    from fakes import targets
    from fakes.arbitrary import filled
    from fakes.schema_targets import SCHEMA_SEEDS

    from kafka_actors.protocol.decoder import decoder

FOUND = Path(".fuzz")
LIMITS = ("-timeout=10", "-rss_limit_mb=1024", "-max_len=4096", "-print_final_stats=1")


def seeds(name: str) -> list[bytes]:
    """Good messages to begin with, where random bytes would take long to make one."""
    whole = [(number, cls.__name__, v, filled(cls, v)) for number, (cls, v) in enumerate(targets.VERSIONS)]
    blobs = [v.to_bytes(2, "big") + body for _, cls, v, body in whole if cls.startswith("ConsumerProtocol")]
    known = [bytes([v]) + body for _, cls, v, body in whole if cls == "MetadataResponse"]
    found = {
        "messages": [number.to_bytes(2, "big") + body for number, _, _, body in whole],
        "versions": framed(body for _, cls, _, body in whole if cls == "ApiVersionsResponse"),
        "blobs": blobs,
        "members": framed(blobs),
        "metadata": framed(known),
        "scram-messages": [b"r=abcdef,s=c2FsdA==,i=4096|v=AAAA"],
        "scram": [b"\0" + piece for piece in framed([b"r=abcdef,s=c2FsdA==,i=4096"])],
        "token-answers": [b'{"access_token": "tok", "expires_in": 60}'],
    }
    found |= {target: [value] for target, value in SCHEMA_SEEDS.items()}
    return found.get(name, [])


def framed(pieces: Iterable[bytes]) -> list[bytes]:
    """Each as the targets take several: with its length, a byte, in front."""
    return [bytes([len(piece)]) + piece for piece in pieces if len(piece) < 256]


def fuzz(name: str, options: list[str]) -> None:
    """One target, in this process, which atheris ends."""
    for cls, version in targets.VERSIONS:
        atheris.instrument_func(decoder(cls, version))  # compiled code has no import to hook into
    atheris.Setup(
        [sys.argv[0], *LIMITS, f"-artifact_prefix={FOUND}/{name}-", *options], targets.TARGETS[name]
    )
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "target", nargs="?", choices=[*targets.TARGETS, []], default=[], help="all by default"
    )
    parser.add_argument("file", nargs="?", help="an input that ended a run")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    given = parser.parse_args()
    if given.target:
        corpus = FOUND / "corpus" / given.target  # what was found to lead further is begun with the next time
        corpus.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds(given.target)):
            (corpus / f"seed-{number}").write_bytes(seed)
        fuzz(given.target, [given.file] if given.file else [f"-max_total_time={given.seconds}", str(corpus)])
    failed = []
    for name in targets.TARGETS:
        print(f"--- {name}", flush=True)
        command = [sys.executable, __file__, name, "--seconds", str(given.seconds)]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
    print(f"failed: {', '.join(failed) or 'none'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
