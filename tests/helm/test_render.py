"""Manifests that the chart makes of its values."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from helm.chart import CHART, VERSIONS, Refused
from helm.dashboard import dashboard
from helm.matrix import JOB, MATRIX, SPREAD

from kafka_actors.cli.job_options import RunConfig, read_workers, written_workers
from kafka_actors.cli.option_sources import from_environment, from_file, layered, read_config_file
from kafka_actors.config.references import resolve
from kafka_actors.config.security import Secret

OAUTH = {"securityProtocol": "SASL_SSL"}
PROVIDED = {"mechanism": "OAUTHBEARER", "tokenProvider": "kafka_actors.identity:Google"}
PASSPHRASE = "sasl_oauthbearer_assertion_private_key_passphrase"
CONTAINERS = [
    (name, MATRIX[name]) for name in ("least", "GPUs, autoscaled", "everything around it", "SCRAM over TLS")
]


def options_of(rendered, tmp_path: Path):
    """The options that `kafka-actors run -c` reads from the ConfigMap, with Secrets that are there."""
    text = rendered.all("ConfigMap")[0]["data"]["job.toml"]
    for secret, keys in (("sasl", ("username", "password", "id", "secret")), ("tls", ("password",))):
        (tmp_path / secret).mkdir()
        for key in keys:
            (tmp_path / secret / key).write_text(f"{secret}-{key}\n")
    (tmp_path / "job.toml").write_text(re.sub(r"/etc/kafka-actors/(sasl|tls)", rf"{tmp_path}/\1", text))
    path = str(tmp_path / "job.toml")
    given = read_config_file("-c", path, RunConfig.__struct_fields__)
    options = layered(RunConfig, from_file(RunConfig, given, path, strict=True)).options
    if "workers" in options:
        options["workers"] = written_workers(read_workers(options["workers"]))
    return {key: _looked_up(key, value) for key, value in options.items()}


def _looked_up(name: str, value):
    """A password, as a process that makes a client has it."""
    return resolve(name, value.reveal()) if isinstance(value, Secret) else value


def mounts(pod) -> dict[str, str]:
    """Mount path → the Secret or ConfigMap behind it."""
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    found = {}
    for mount in pod["spec"]["containers"][0]["volumeMounts"]:
        volume = volumes[mount["name"]]
        found[mount["mountPath"]] = volume.get("secret", {}).get("secretName") or volume.get(
            "configMap", {}
        ).get("name")
    return found


# ---------------------------------------------------------------- the job


def test_the_job_is_run_with_the_options_of_the_values(render, tmp_path):
    rendered = render(MATRIX["all of a job"])
    assert rendered.spec["entrypoint"] == (
        "kafka-actors run --log-format text --log-level debug --config-file /etc/kafka-actors/config/job.toml"
    )
    assert mounts(rendered.head)["/etc/kafka-actors/config"] == "scorer-kafka-actors-config"
    assert options_of(rendered, tmp_path) == {
        "job": "scoring:job",
        "workers": 8,
        "until": "latest",
        "bootstrap_servers": ["a:9092", "b:9092"],
        "group_id": "scorer",
        "drain_timeout_ms": 20_000,
        "session_timeout_ms": 30_000,
        "auto_offset_reset": "latest",
        "check_crcs": False,
        "partition_assignment_strategy": ["range", "sticky"],
        "worker_capacity": {0: 2.0},
        "client_id": 'a "name" <&>',
        "topics": ["orders", "returns"],
        "name": "scorer",
        "on_error": "dead_letter",
        "dead_letter_topic": "dead",
        "resources_per_worker": {"num_cpus": 1, "num_gpus": 0.5, "resources": {"disk": 1}},
    }
    spec = rendered.spec
    assert (spec["submissionMode"], spec["suspend"], spec["activeDeadlineSeconds"]) == (
        "HTTPMode",
        True,
        3600,
    )
    assert "submitterPodTemplate" not in spec


def test_options_may_stand_in_tables_within_tables(render, tmp_path):
    """Tables within tables are written as TOML has them; as JSON they would be none."""
    options = {"fetch": {"max": {"bytes": 1_000_000}, "min": {"bytes": 5}}, "client_id": "x"}
    read = options_of(render({"job": {"target": "orders:job", "options": options}}), tmp_path)
    assert (read["fetch_max_bytes"], read["fetch_min_bytes"], read["client_id"]) == (1_000_000, 5, "x")


def test_options_of_a_pipeline_on_spark_have_none_that_only_a_job_has(render, tmp_path):
    """`kafka-actors run` would refuse it by name."""
    options = {"engine": "spark", "checkpoint": "s3://c", "spark_options": {"maxOffsetsPerTrigger": 5}}
    read = options_of(render({"job": {"target": "orders:pipeline", "options": options}}), tmp_path)
    assert read == {"job": "orders:pipeline", **options}


@pytest.mark.parametrize(
    ("name", "configmap", "target"),
    [
        ("a file", "scorer-kafka-actors-code", "orders.py:job"),
        ("files of a ConfigMap", "orders-code", "orders.py:job"),
    ],
)
def test_a_jobs_file_is_on_all_pods_under_its_name(render, tmp_path, name, configmap, target):
    rendered = render(MATRIX[name])
    assert options_of(rendered, tmp_path)["job"] == f"/etc/kafka-actors/code/{target}"
    for pod in (rendered.head, rendered.groups[0]["template"]):
        assert mounts(pod)["/etc/kafka-actors/code"] == configmap
        assert {"name": "PYTHONPATH", "value": "/etc/kafka-actors/code"} in pod["spec"]["containers"][0][
            "env"
        ]
    made = [each for each in rendered.all("ConfigMap") if each["metadata"]["name"].endswith("-code")]
    assert [each["data"] for each in made] == (
        [{"orders.py": "import kafka_actors as ka\njob = ka.Job()\n"}] if name == "a file" else []
    )


def test_a_change_of_values_is_another_rayjob_and_no_change_is_the_same(render):
    def name(**job) -> str:
        return render({"job": {**JOB, **job}}).one("RayJob")["metadata"]["name"]

    first = name()
    assert re.fullmatch(r"scorer-kafka-actors-[0-9a-f]{8}", first)
    assert name() == first
    assert len({first, name(workers=3), name(options={"retries": 1}), name(backoffLimit=1)}) == 4
    assert name(replaceOnChange=False) == "scorer-kafka-actors"


def test_names_fit_into_what_kuberay_allows(render):
    found = render({"job": JOB, "fullnameOverride": "a" * 38}).one("RayJob")["metadata"]["name"]
    assert len(found) == 47
    assert len(render({"job": JOB}, name="a" * 53).one("RayJob")["metadata"]["name"]) <= 47


def test_a_job_on_a_selected_cluster_has_its_options_in_the_runtime_environment(render):
    rendered = render(MATRIX["a selected cluster"])
    assert {document["kind"] for document in rendered.documents} == {"RayJob"}
    spec = rendered.spec
    assert spec["clusterSelector"] == {"ray.io/cluster": "shared"}
    assert not {"rayClusterSpec", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished"} & spec.keys()
    assert spec["entrypoint"] == "kafka-actors run --log-format json --log-level info"
    variables = yaml.safe_load(spec["runtimeEnvYAML"])["env_vars"]
    assert variables.pop("RAY_JOB_STOP_WAIT_TIME_S") == "50"
    assert layered(RunConfig, from_environment(RunConfig, variables, ())).options == {
        "job": "scoring:job",
        "workers": "3",  # or a range: `run` reads it
        "bootstrap_servers": ["a:9092"],
        "group_id": "scorer",
        "drain_timeout_ms": 5_000,
        "partition_assignment_strategy": ["range", "sticky"],
        "check_crcs": True,
        "resources_per_worker": {"num_cpus": 1},
    }


def test_a_range_of_workers_is_for_the_job_to_read(render, tmp_path):
    ranged = {"job": {**JOB, "workers": "1..16"}}
    assert options_of(render(ranged), tmp_path)["workers"] == "1..16"
    selected = render({**ranged, "cluster": {"selector": {"ray.io/cluster": "shared"}}})
    variables = yaml.safe_load(selected.spec["runtimeEnvYAML"])["env_vars"]
    assert variables["KAFKA_ACTORS_WORKERS"] == "1..16"


# ---------------------------------------------------------------- secrets


@pytest.mark.parametrize(
    ("name", "options"),
    [
        (
            "SCRAM over TLS",
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "SCRAM-SHA-512",
                "sasl_plain_username": "sasl-username",
                "sasl_plain_password": "sasl-password",
                "ssl_cafile": "TLS/ca.crt",
            },
        ),
        (
            "client certificates",
            {
                "security_protocol": "SSL",
                "ssl_cafile": "TLS/ca.crt",
                "ssl_certfile": "TLS/tls.crt",
                "ssl_keyfile": "TLS/tls.key",
                "ssl_password": "tls-password",
                "ssl_check_hostname": False,
            },
        ),
        (
            "OAUTHBEARER",
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauthbearer_client_credentials_client_id": "sasl-id",
                "sasl_oauthbearer_client_credentials_client_secret": "sasl-secret",
                "sasl_oauthbearer_token_endpoint_url": "https://login/token",
                "sasl_oauthbearer_scope": "kafka",
            },
        ),
        ("GSSAPI", {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}),
        (
            "MSK's IAM",
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "AWS_MSK_IAM",
                "sasl_identity": {"role_arn": "arn:aws:iam::1:role/orders"},
            },
        ),
        (
            "Entra",
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauth_token_provider": "kafka_actors.identity:Azure",
                "sasl_identity": {"client_id": "11111111-2222-3333-4444-555555555555"},
            },
        ),
    ],
)
def test_secrets_are_files_that_the_options_name(render, tmp_path, name, options):
    rendered = render(MATRIX[name])
    read = options_of(rendered, tmp_path)
    wanted = {k: v.replace("TLS", f"{tmp_path}/tls") if isinstance(v, str) else v for k, v in options.items()}
    assert {
        key: value for key, value in read.items() if key.startswith(("ssl", "sasl", "security"))
    } == wanted
    kafka = MATRIX[name]["kafka"]
    secrets = {
        f"/etc/kafka-actors/{part}": kafka[part]["existingSecret"]
        for part in ("sasl", "tls")
        if kafka.get(part, {}).get("existingSecret")
    }
    for _, pod in [each for each in rendered.pods() if each[0] != "submitter"]:
        assert secrets.items() <= mounts(pod).items()
        modes = {
            v["secret"].get("defaultMode") for v in pod["spec"]["volumes"] if v["name"] in ("sasl", "tls")
        }
        assert modes <= {0o440}


def test_a_private_keys_passphrase_is_a_reference_that_each_process_looks_up(render, tmp_path, monkeypatch):
    rendered = render(MATRIX["a private key"])
    assert "${env:PASSPHRASE}" in rendered.all("ConfigMap")[0]["data"]["job.toml"]
    monkeypatch.setenv("PASSPHRASE", "hush")
    assert options_of(rendered, tmp_path)["sasl_oauthbearer_assertion_private_key_passphrase"] == "hush"


@pytest.mark.parametrize("name", ["MSK's IAM", "Entra"])
def test_a_clouds_identity_is_that_of_the_pods(render, name):
    """No Secret is mounted: the service account of all pods has what its cloud wants."""
    rendered = render(MATRIX[name])
    account = rendered.one("ServiceAccount")
    assert account["metadata"]["annotations"] == MATRIX[name]["serviceAccount"]["annotations"]
    for _, pod in [each for each in rendered.pods() if each[0] != "submitter"]:
        assert pod["spec"]["serviceAccountName"] == account["metadata"]["name"]
        assert "sasl" not in {volume["name"] for volume in pod["spec"]["volumes"]}


# ---------------------------------------------------------------- pods


@pytest.mark.parametrize(("name", "values"), CONTAINERS, ids=[name for name, _ in CONTAINERS])
def test_all_containers_run_without_rights_on_a_read_only_root(render, name, values):
    rendered = render(values)
    pods = dict(rendered.pods())
    assert len(pods) >= 3
    for where, pod in pods.items():
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, where
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["enableServiceLinks"] is False
        for container in (each for each in spec["containers"] if each["name"].startswith("ray-")):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]
            assert {"name": "HOME", "value": "/tmp"} in container["env"]
    autoscaler = rendered.spec["rayClusterSpec"].get("autoscalerOptions")
    if autoscaler:
        assert autoscaler["securityContext"]["readOnlyRootFilesystem"] is True
        assert autoscaler["volumeMounts"] == [{"name": "tmp", "mountPath": "/tmp"}]


def test_only_who_needs_the_api_server_has_a_token(render):
    for name, with_token in (("least", set()), ("GPUs, autoscaled", {"head"})):
        pods = dict(render(MATRIX[name]).pods())
        assert {
            where for where, pod in pods.items() if pod["spec"]["automountServiceAccountToken"]
        } == with_token


def test_pods_live_longer_than_the_drain_and_the_job_is_stopped_before_them(render):
    rendered = render({"job": {**JOB, "drainTimeoutMs": 40_000}, "terminationGracePeriodSeconds": 90})
    head, worker = rendered.head["spec"], rendered.groups[0]["template"]["spec"]
    assert head["terminationGracePeriodSeconds"] == worker["terminationGracePeriodSeconds"] == 90
    env = {each["name"]: each["value"] for each in head["containers"][0]["env"]}
    assert env["RAY_JOB_STOP_WAIT_TIME_S"] == "80"
    stop = head["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert stop == ["python3", "/etc/kafka-actors/config/stop_jobs.py", "85"]
    assert "stop_jobs.py" in rendered.all("ConfigMap")[0]["data"]
    wait = worker["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert wait[:2] == ["bash", "-c"]
    assert "i < 50" in wait[2]


def test_gpus_and_sizes_of_a_group(render):
    cpu, gpu = render(MATRIX["GPUs, autoscaled"]).groups
    assert (cpu["replicas"], cpu["minReplicas"], cpu["maxReplicas"]) == (2, 1, 9)
    assert (gpu["replicas"], gpu["minReplicas"], gpu["maxReplicas"], gpu["idleTimeoutSeconds"]) == (
        1,
        0,
        4,
        300,
    )
    assert gpu["rayStartParams"] == {"object-store-memory": "2000000000"}
    pod = gpu["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert pod["nodeSelector"] == {"accelerator": "l4"}
    assert pod["tolerations"][0]["key"] == "nvidia.com/gpu"
    assert pod["runtimeClassName"] == "nvidia"


def test_the_autoscaler_has_its_role_and_without_it_groups_keep_their_size(render):
    rendered = render(MATRIX["GPUs, autoscaled"])
    cluster = rendered.spec["rayClusterSpec"]
    assert cluster["enableInTreeAutoscaling"] is True
    assert (cluster["autoscalerOptions"]["version"], cluster["autoscalerOptions"]["upscalingMode"]) == (
        "v2",
        "Conservative",
    )
    account = rendered.one("ServiceAccount")["metadata"]["name"]
    assert rendered.head["spec"]["serviceAccountName"] == account
    assert rendered.one("RoleBinding")["subjects"][0]["name"] == account
    assert {rule["resources"][0]: rule["verbs"] for rule in rendered.one("Role")["rules"]} == {
        "pods": ["get", "list", "watch"],
        "rayclusters": ["get", "patch"],
    }
    least = render(MATRIX["least"])
    assert not least.all("Role")
    assert least.spec["rayClusterSpec"]["enableInTreeAutoscaling"] is False
    (group,) = least.groups
    assert group["replicas"] == group["minReplicas"] == group["maxReplicas"] == 2
    theirs = render(MATRIX["accounts of others"])
    assert not theirs.all("ServiceAccount")
    assert not theirs.all("Role")
    assert theirs.head["spec"]["serviceAccountName"] == "theirs"


# ---------------------------------------------------------------- around them


def test_the_status_page_brings_flag_port_probes_and_service_and_nothing_asks_for_it_without(render):
    least = render(MATRIX["least"])
    container = least.head["spec"]["containers"][0]
    assert "--status" not in least.spec["entrypoint"]
    assert not {"livenessProbe", "readinessProbe"} & container.keys()  # KubeRay's own
    assert not least.all("Service")
    rendered = render({"job": JOB, "status": {"enabled": True, "port": 9000}})
    container = rendered.head["spec"]["containers"][0]
    assert rendered.spec["entrypoint"].endswith(" --status 0.0.0.0:9000")
    assert {"name": "status", "containerPort": 9000} in container["ports"]
    for probe, path in (("livenessProbe", "healthz"), ("readinessProbe", "readyz")):
        assert f"http://127.0.0.1:9000/{path}" in container[probe]["exec"]["command"][2]
    service = rendered.one("Service")["spec"]
    assert {port["name"]: port["port"] for port in service["ports"]} == {"status": 9000, "metrics": 8080}
    labels = rendered.head["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    assert "livenessProbe" not in rendered.groups[0]["template"]["spec"]["containers"][0]


def test_monitors_find_the_pods_and_the_service(render):
    rendered = render(MATRIX["everything around it"])
    monitor = rendered.one("PodMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert {each["port"]: each.get("path") for each in monitor["spec"]["podMetricsEndpoints"]} == {
        "metrics": None,
        "status": "/metrics",
    }
    selected = monitor["spec"]["selector"]
    (expression,) = selected["matchExpressions"]
    chosen = {
        where
        for where, pod in rendered.pods()
        if selected["matchLabels"].items() <= pod["metadata"]["labels"].items()
        and pod["metadata"]["labels"][expression["key"]] in expression["values"]
    }
    assert chosen == {"head", "workers"}
    rendered = render(MATRIX["monitored by its Service"])
    selected = rendered.one("ServiceMonitor")["spec"]["selector"]["matchLabels"]
    assert selected.items() <= rendered.one("Service")["metadata"]["labels"].items()


def test_the_alerts_are_those_of_the_file_with_what_the_values_say(render):
    rule = render(MATRIX["everything around it"]).one("PrometheusRule")
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    ours, more = rule["spec"]["groups"]
    assert more == {"name": "more", "rules": [{"alert": "Up", "expr": "up == 0"}]}
    (known,) = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]
    wanted = [
        {**alert, "labels": {"severity": "page"}} for alert in known["rules"] if alert["alert"] != "Slow"
    ]
    assert (ours["name"], ours["rules"]) == (known["name"], wanted)
    assert not render({"job": JOB}).all("PrometheusRule")
    plain = render({"job": JOB, "metrics": {"prometheusRule": {"enabled": True}}}).one("PrometheusRule")
    assert plain["spec"]["groups"] == [known]


def test_a_digest_counts_instead_of_the_tag(render):
    images = {
        pod["spec"]["containers"][0]["image"] for _, pod in render(MATRIX["everything around it"]).pods()
    }
    assert images == {"registry/scorer@sha256:" + "0f" * 32}


def test_other_containers_stand_beside_rays_which_stays_the_first(render):
    rendered = render(MATRIX["everything around it"])
    for where, pod in rendered.pods():
        spec = pod["spec"]
        names = [container["name"] for container in spec["containers"]]
        if where == "submitter":
            assert names == ["ray-job-submitter"]
            continue
        assert names == [f"ray-{'head' if where == 'head' else 'worker'}", "proxy"]
        assert [container["name"] for container in spec["initContainers"]] == ["model"]
    assert rendered.head["spec"]["topologySpreadConstraints"] == SPREAD


def test_a_cluster_with_a_token_has_kuberay_make_it_or_takes_yours(render):
    assert render(MATRIX["a token"]).spec["rayClusterSpec"]["authOptions"] == {
        "mode": "token",
        "secretName": "ray-token",
    }
    made = render({"job": JOB, "authOptions": {"mode": "token"}})
    assert made.spec["rayClusterSpec"]["authOptions"] == {"mode": "token"}
    assert "authOptions" not in render(MATRIX["least"]).spec["rayClusterSpec"]


def test_the_autoscaler_reaches_the_api_server_through_a_closed_egress(render):
    closed = {"job": JOB, "networkPolicy": {"enabled": True, "egress": {"enabled": True}}}
    opened = {**closed, "autoscaling": {"enabled": True}}
    rules = [render(values).one("NetworkPolicy")["spec"]["egress"] for values in (closed, opened)]
    assert [rule for rule in rules[1] if rule not in rules[0]] == [
        {"ports": [{"protocol": "TCP", "port": 443}, {"protocol": "TCP", "port": 6443}]}
    ]


def test_the_dashboard_is_found_by_its_label_and_is_what_the_file_says(render):
    rendered = render({"job": JOB, "metrics": {"dashboard": {"enabled": True, "labels": {"of": "team"}}}})
    (found,) = [each for each in rendered.all("ConfigMap") if each["metadata"]["name"].endswith("-dashboard")]
    assert found["metadata"]["labels"].items() >= {"grafana_dashboard": "1", "of": "team"}.items()
    assert json.loads(found["data"]["kafka-actors.json"]) == dashboard()
    assert not [c for c in render({"job": JOB}).all("ConfigMap") if "dashboard" in c["metadata"]["name"]]


def test_budgets_are_whole_numbers_of_the_pods_that_stay(render):
    rendered = render(MATRIX["everything around it"])
    budgets = {each["metadata"]["name"]: each["spec"] for each in rendered.all("PodDisruptionBudget")}
    assert {name: spec["minAvailable"] for name, spec in budgets.items()} == {
        "scorer-kafka-actors-head": 1,
        "scorer-kafka-actors-worker": 3,
    }
    assert all("maxUnavailable" not in spec for spec in budgets.values())
    pods = dict(rendered.pods())
    for name, where in (("scorer-kafka-actors-head", "head"), ("scorer-kafka-actors-worker", "workers")):
        chosen = budgets[name]["selector"]["matchLabels"].items()
        assert {each for each, pod in pods.items() if chosen <= pod["metadata"]["labels"].items()} == {where}


def test_the_network_is_open_to_its_own_pods_the_operator_and_prometheus(render):
    policy = render(MATRIX["everything around it"]).one("NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    own, operator, prometheus, more = policy["ingress"]
    assert own == {"from": [{"podSelector": policy["podSelector"]}]}
    assert operator["ports"] == [{"protocol": "TCP", "port": 8265}]
    assert [each["port"] for each in prometheus["ports"]] == [8080, 9000]
    assert more == {"from": [{"podSelector": {}}]}
    assert [sorted({port["port"] for port in rule.get("ports", [])}) for rule in policy["egress"]] == [
        [],
        [53],
        [9092, 9093],
        [443],
    ]
    assert policy["egress"][2]["to"] == [{"ipBlock": {"cidr": "10.0.0.0/8"}}]
    (closed,) = [render({"job": JOB, "networkPolicy": {"enabled": True}}).one("NetworkPolicy")["spec"]]
    assert closed["policyTypes"] == ["Ingress"]
    assert len(closed["ingress"]) == 3


def test_without_a_selector_the_operator_and_prometheus_are_let_in_from_any_namespace(render):
    values = {"job": JOB, "networkPolicy": {"enabled": True}, "status": {"enabled": True, "port": 9000}}
    _, operator, prometheus = render(values).one("NetworkPolicy")["spec"]["ingress"]
    assert [each["namespaceSelector"] for rule in (operator, prometheus) for each in rule["from"]] == [{}, {}]
    assert [each["port"] for each in prometheus["ports"]] == [8080, 9000]


@pytest.fixture
def notes(helm, tmp_path):
    """NOTES.txt. Helm shows it only after it has asked a cluster; so it is rendered as a file of a copy of the chart."""
    copy = shutil.copytree(CHART, tmp_path / "chart")
    (copy / "templates" / "NOTES.txt").rename(copy / "notes")
    (copy / "templates" / "said.yaml").write_text('said: {{ tpl (.Files.Get "notes") . | toJson }}')
    options = ("-n", "streams", "--kube-version", VERSIONS[-1], "--show-only", "templates/said.yaml")

    def said(values: dict) -> str:
        text = helm("template", "scorer", str(copy), *options, "--values", "-", stdin=yaml.safe_dump(values))
        return yaml.safe_load(text)["said"]

    return said


def test_the_notes_say_what_to_look_at(notes):
    said = notes({**MATRIX["everything around it"], "autoscaling": {"enabled": True}})
    assert re.search(r"kubectl --namespace streams get rayjob scorer-kafka-actors-[0-9a-f]{8}\n", said)
    assert "port-forward service/scorer-kafka-actors 9000" in said
    assert 'resources_per_worker={"num_cpus": 1}' in said


@pytest.mark.parametrize(
    ("workers", "says"),
    [
        (None, 'workers=ka.Autoscale(min=1, max=16), or job.workers "1..16" here, follows the lag'),
        (4, 'The job has 4 workers, whatever its lag: job.workers "1..16" follows it'),
        ("2..9", "The job has 2..9 workers, as many as its records need"),
    ],
)
def test_where_pods_come_by_what_workers_ask_for_the_notes_say_how_many_workers_ask(notes, workers, says):
    said = notes({"job": {**JOB, "workers": workers}, "autoscaling": {"enabled": True}})
    assert says in said
    assert "num_cpus" not in notes({"job": {**JOB, "workers": workers}})


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "job: name what to run: target, file, existingConfigMap or entrypoint"),
        ({"job": {"existingConfigMap": "x"}}, "job.target: has to name the job in existingConfigMap"),
        (
            {"job": {**JOB, "existingConfigMap": "x", "file": "code"}},
            "job: give either file or existingConfigMap",
        ),
        ({"job": {**JOB, "entrypoint": "x"}}, "job: give either entrypoint or target"),
        (
            {"job": {**JOB, "options": {"sasl.plain.password": "hush"}}},
            "job.options.sasl.plain.password: is secret: give kafka.sasl.existingSecret",
        ),
        (
            {"job": {**JOB, "options": {"sasl.jaas.config": "hush"}}},
            "job.options.sasl.jaas.config: is secret",
        ),
        (
            {"job": {**JOB, "options": {"sasl": {"plain": {"password": "hush"}}}}},
            "job.options.sasl.plain.password: is secret",
        ),
        (
            {"job": {**JOB, "options": {PASSPHRASE: "hush"}}},
            f"job.options.{PASSPHRASE}: is secret",
        ),
        (
            {"job": {**JOB, "options": {"sasl_identity": {"api_token": "hush"}}}},
            "job.options.sasl_identity.api_token: is secret",
        ),
        (
            {"job": JOB, "kafka": {**OAUTH, "sasl": {**PROVIDED, "identity": {"private_key": "hush"}}}},
            "kafka.sasl.identity.private_key: is secret",
        ),
        (
            {"job": JOB, "kafka": {**OAUTH, "sasl": {"mechanism": "AWS_MSK_IAM", "existingSecret": "x"}}},
            "kafka.sasl.existingSecret: is given, but AWS_MSK_IAM has no user and password",
        ),
        (
            {"job": JOB, "kafka": {**OAUTH, "sasl": {**PROVIDED, "mechanism": "PLAIN"}}},
            "kafka.sasl.tokenProvider: is for OAUTHBEARER, but kafka.sasl.mechanism is PLAIN",
        ),
        (
            {"job": JOB, "kafka": {**OAUTH, "sasl": {**PROVIDED, "existingSecret": "x"}}},
            "kafka.sasl.tokenProvider: gets the token itself",
        ),
        (
            {"job": JOB, "kafka": {**OAUTH, "sasl": {"mechanism": "PLAIN", "identity": {"a": "b"}}}},
            "kafka.sasl.identity: has the arguments of kafka.sasl.tokenProvider or of AWS_MSK_IAM",
        ),
        (
            {
                "job": JOB,
                **MATRIX["MSK's IAM"],
                "networkPolicy": {"enabled": True, "egress": {"enabled": True}},
            },
            "networkPolicy.egress.extra: is empty, but the pod's identity asks its cloud",
        ),
        (
            {"job": {**JOB, "options": {"group.id": "x"}}, "kafka": {"groupId": "mine"}},
            "job.options.group.id: another value of the chart says this already",
        ),
        (
            {"job": {**JOB, "drainTimeoutMs": 50_000}},
            "terminationGracePeriodSeconds: is 60: has to be more than job.drainTimeoutMs (50000) by 20 s",
        ),
        (
            {"job": {**JOB, "workers": "16..1"}},
            "job.workers: is 16..1: the first number is the least, the second the most",
        ),
        (
            {"job": JOB, "kafka": {"securityProtocol": "SASL_SSL"}},
            "kafka.sasl.mechanism: is needed for securityProtocol SASL_SSL",
        ),
        ({"job": JOB, "kafka": {"sasl": {"mechanism": "PLAIN"}}}, "kafka.sasl.mechanism: is given, but"),
        ({"job": JOB, "kafka": {"tls": {"existingSecret": "x"}}}, "kafka.tls.existingSecret: is given, but"),
        ({"job": JOB, "cluster": {"selector": {"app": "x"}}}, "by the label ray.io/cluster alone"),
        (
            {"job": {"file": "x"}, "cluster": {"selector": {"ray.io/cluster": "x"}}},
            "job: a selected cluster has pods of its own",
        ),
        (
            {
                "job": JOB,
                "cluster": {"selector": {"ray.io/cluster": "x"}},
                "kafka": {"securityProtocol": "SSL", "tls": {"existingSecret": "x"}},
            },
            "kafka: a selected cluster has pods of its own",
        ),
        (
            {
                "job": {**JOB, "options": {"sasl_plain_password": "${file:/x}"}},
                "cluster": {"selector": {"ray.io/cluster": "x"}},
            },
            "job.submissionMode: has to be HTTPMode, because the submitter's shell would take $",
        ),
        (
            {
                "job": JOB,
                "cluster": {"selector": {"ray.io/cluster": "x"}},
                "podDisruptionBudget": {"enabled": True},
            },
            "podDisruptionBudget.enabled: is the selected cluster's own affair",
        ),
        (
            {"job": JOB, "cluster": {"selector": {"ray.io/cluster": "x"}}, "authOptions": {"mode": "token"}},
            "authOptions.mode: is the selected cluster's own affair",
        ),
        ({"job": JOB, "authOptions": {"secretName": "x"}}, "authOptions.secretName: is given, but"),
        (
            {
                "job": JOB,
                **MATRIX["OAUTHBEARER"],
                "networkPolicy": {"enabled": True, "egress": {"enabled": True}},
            },
            "networkPolicy.egress.extra: is empty, but OAUTHBEARER asks",
        ),
        ({"job": JOB, "workerGroups": []}, "workerGroups: is empty"),
        (
            {
                "job": JOB,
                "autoscaling": {"enabled": True},
                "workerGroups": [{"name": "a", "replicas": 1, "minReplicas": 2}],
            },
            "workerGroups a: minReplicas is more than maxReplicas",
        ),
        (
            {"job": JOB, "metrics": {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}},
            "metrics: give either podMonitor or serviceMonitor",
        ),
    ],
)
def test_values_that_do_not_go_together_are_refused_in_a_line(render, values, says):
    with pytest.raises(Refused) as caught:
        render(values)
    assert says in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"job": {**JOB, "wrokers": 3}}, "wrokers"),
        ({"job": {**JOB, "workers": 0}}, "workers"),
        ({"job": {**JOB, "workers": "many"}}, "workers"),
        ({"job": {**JOB, "workers": "0..4"}}, "workers"),
        ({"job": {**JOB, "workers": "4.."}}, "workers"),
        ({"job": {"target": "no colon"}}, "target"),
        ({"kafka": {"securityProtocol": "TLS"}}, "securityProtocol"),
        ({"kafka": {"sasl": {"mechanism": "AWS"}}}, "mechanism"),
        ({"kafka": {"sasl": {"tokenProvider": "Azure"}}}, "tokenProvider"),
        ({"workerGroups": [{"replicas": 1}]}, "name"),
        ({"head": {"resources": {"limits": {"memory": "lots"}}}}, "memory"),
        ({"status": {"port": 70_000}}, "port"),
        ({"image": {"digest": "0f"}}, "digest"),
        ({"job": {**JOB, "resourcesPerWorker": {"cpu": 1}}}, "cpu"),
        ({"persistence": {}}, "persistence"),
    ],
)
def test_the_schema_refuses_what_is_misspelt_or_of_another_kind(render, values, says):
    with pytest.raises(Refused) as caught:
        render({"job": JOB, **values})
    assert "values don't meet the specifications of the schema" in str(caught.value)
    assert says in str(caught.value)
