# The image of helm/kafka-actors: Ray, with its dashboard, and kafka-actors. Your code and packages on top of it:
#
#   FROM kafka-actors:0.1.0
#   USER root
#   RUN pip install --no-cache-dir scikit-learn
#   USER 1000
#   COPY orders.py /home/ray/
#
#   docker build --tag kafka-actors:0.1.0 .
#   docker build --build-arg EXTRAS=ray,telemetry,gssapi --tag kafka-actors:0.1.0-gssapi .
ARG PYTHON_VERSION=3.11

FROM python:${PYTHON_VERSION}-slim-bookworm AS build
# For the record kernel; gssapi is built from source, too.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends gcc libc6-dev libkrb5-dev \
 && rm -rf /var/lib/apt/lists/*
RUN python -m venv /opt/kafka-actors
ENV PATH=/opt/kafka-actors/bin:$PATH
WORKDIR /src
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .
# All nodes of a Ray cluster have the same version of Ray: `rayVersion` of the chart.
ARG RAY_VERSION=2.60.0
ARG EXTRAS=ray,telemetry,avro
# pip stays: images on top of this one need it, and so does Ray for `pip` of a runtime environment.
RUN pip install --no-cache-dir "$(echo /wheels/kafka_actors-*.whl)[${EXTRAS}]" "ray[default]==${RAY_VERSION}" \
 # A wheel without the kernel works, slowly: an image of it would be a mistake. -P: the wheel's, not that of the sources here.
 && python -P -c "import kafka_actors.records._kernel"

FROM python:${PYTHON_VERSION}-slim-bookworm
LABEL org.opencontainers.image.title="kafka-actors" \
      org.opencontainers.image.description="Kafka consumer groups as Ray actors: the image of helm/kafka-actors" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
# KubeRay's probes and commands need bash and wget; libgssapi is what gssapi loads. A login shell, which KubeRay can be told to
# use, has a PATH of its own. Python's own modules come without byte code, and a read-only root would never have any: each
# process would compile what it imports.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends bash wget ca-certificates libgssapi-krb5-2 \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --gid 1000 ray \
 && useradd --uid 1000 --gid 1000 --create-home --shell /bin/bash ray \
 && echo 'PATH=/opt/kafka-actors/bin:$PATH' > /etc/profile.d/kafka-actors.sh \
 && python -m compileall -q -x site-packages "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
COPY --from=build /opt/kafka-actors /opt/kafka-actors
ENV PATH=/opt/kafka-actors/bin:$PATH \
    PYTHONUNBUFFERED=1
USER 1000:1000
WORKDIR /home/ray
# What a pod runs is KubeRay's to say; this is for a look at the image.
CMD ["kafka-actors", "--help"]
