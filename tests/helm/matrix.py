"""Values that users would give, by what they are about."""

from typing import Any

JOB = {"target": "scoring:job"}
GPUS = {
    "name": "gpu",
    "replicas": 1,
    "maxReplicas": 4,
    "idleTimeoutSeconds": 300,
    "resources": {"requests": {"cpu": 4}, "limits": {"cpu": 4, "memory": "16Gi", "nvidia.com/gpu": 1}},
    "rayStartParams": {"object-store-memory": 2_000_000_000},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "nodeSelector": {"accelerator": "l4"},
    "runtimeClassName": "nvidia",
}

SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/component": "head"}},
    }
]

MATRIX: dict[str, dict[str, Any]] = {
    "least": {"job": JOB},
    "a file": {"job": {"file": "import kafka_actors as ka\njob = ka.Job()\n", "target": "orders.py:job"}},
    "files of a ConfigMap": {"job": {"existingConfigMap": "orders-code", "target": "orders.py:job"}},
    "an entrypoint": {"job": {"entrypoint": "python -m scoring"}},
    "all of a job": {
        "job": {
            **JOB,
            "workers": 8,
            "until": "latest",
            "options": {
                "session.timeout.ms": 30_000,
                "auto_offset_reset": "latest",
                "check_crcs": False,
                "partition_assignment_strategy": ["range", "sticky"],
                "worker_capacity": {"0": 2},
                "client_id": 'a "name" <&>',
                "on_error": "dead_letter",
            },
            "name": "scorer",
            "deadLetterTopic": "dead",
            "resourcesPerWorker": {"num_cpus": 1, "num_gpus": 0.5, "resources": {"disk": 1}},
            "drainTimeoutMs": 20_000,
            "logFormat": "text",
            "logLevel": "debug",
            "runtimeEnv": {"env_vars": {"MODEL": "small"}},
            "backoffLimit": 0,
            "activeDeadlineSeconds": 3_600,
            "submissionMode": "HTTPMode",
            "suspend": True,
            "labels": {"kueue.x-k8s.io/queue-name": "batch"},
            "annotations": {"team": "orders"},
        },
        "kafka": {"bootstrapServers": "a:9092,b:9092", "groupId": "scorer", "topics": ["orders", "returns"]},
    },
    "a token": {"job": JOB, "authOptions": {"mode": "token", "secretName": "ray-token"}},
    "a selected cluster": {
        "job": {
            **JOB,
            "workers": 3,
            "resourcesPerWorker": {"num_cpus": 1},
            "options": {"partition_assignment_strategy": ["range", "sticky"], "check_crcs": True},
        },
        "cluster": {"selector": {"ray.io/cluster": "shared"}},
        "kafka": {"bootstrapServers": "a:9092", "groupId": "scorer"},
    },
    "a selected cluster with a status page": {
        "job": JOB,
        "cluster": {"selector": {"ray.io/cluster": "shared"}},
        "status": {"enabled": True},
        "metrics": {"serviceMonitor": {"enabled": True}},
    },
    "SCRAM over TLS": {
        "job": JOB,
        "kafka": {
            "bootstrapServers": "a:9093",
            "securityProtocol": "SASL_SSL",
            "sasl": {"mechanism": "SCRAM-SHA-512", "existingSecret": "kafka-login"},
            "tls": {"existingSecret": "kafka-ca"},
        },
    },
    "client certificates": {
        "job": JOB,
        "kafka": {
            "securityProtocol": "SSL",
            "tls": {
                "existingSecret": "mtls",
                "certKey": "tls.crt",
                "passwordKey": "password",
                "checkHostname": False,
            },
        },
    },
    "OAUTHBEARER": {
        "job": JOB,
        "kafka": {
            "securityProtocol": "SASL_SSL",
            "sasl": {
                "mechanism": "OAUTHBEARER",
                "existingSecret": "oauth",
                "usernameKey": "id",
                "passwordKey": "secret",
                "tokenEndpointUrl": "https://login/token",
                "scope": "kafka",
            },
        },
    },
    "MSK's IAM": {
        "job": JOB,
        "kafka": {
            "securityProtocol": "SASL_SSL",
            "sasl": {"mechanism": "AWS_MSK_IAM", "identity": {"role_arn": "arn:aws:iam::1:role/orders"}},
        },
        "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/scorer"}},
    },
    "Entra": {
        "job": JOB,
        "kafka": {
            "securityProtocol": "SASL_SSL",
            "sasl": {
                "mechanism": "OAUTHBEARER",
                "tokenProvider": "kafka_actors.identity:Azure",
                "identity": {"client_id": "11111111-2222-3333-4444-555555555555"},
            },
        },
        "serviceAccount": {"annotations": {"azure.workload.identity/client-id": "1111"}},
        "head": {"podLabels": {"azure.workload.identity/use": "true"}},
    },
    "a private key": {
        "job": {
            **JOB,
            "options": {
                "sasl_oauthbearer_assertion_private_key_file": "/etc/key/orders.pem",
                "sasl_oauthbearer_assertion_private_key_passphrase": "${env:PASSPHRASE}",
                "sasl_oauthbearer_assertion_claim_iss": "orders",
            },
        },
        "kafka": {
            "securityProtocol": "SASL_SSL",
            "sasl": {"mechanism": "OAUTHBEARER", "tokenEndpointUrl": "https://login/token"},
        },
        "env": [{"name": "PASSPHRASE", "valueFrom": {"secretKeyRef": {"name": "key", "key": "passphrase"}}}],
        "extraVolumes": [{"name": "key", "secret": {"secretName": "key"}}],
        "extraVolumeMounts": [{"name": "key", "mountPath": "/etc/key", "readOnly": True}],
    },
    "GSSAPI": {
        "job": JOB,
        "kafka": {"securityProtocol": "SASL_PLAINTEXT", "sasl": {"mechanism": "GSSAPI"}},
        "env": [{"name": "KRB5_CLIENT_KTNAME", "value": "/etc/krb/keytab"}],
        "extraVolumes": [{"name": "krb", "secret": {"secretName": "krb"}}],
        "extraVolumeMounts": [{"name": "krb", "mountPath": "/etc/krb", "readOnly": True}],
    },
    "GPUs, autoscaled": {
        "job": {**JOB, "workers": "1..16"},
        "autoscaling": {"enabled": True, "version": "v2", "upscalingMode": "Conservative"},
        "workerGroups": [{"name": "cpu", "replicas": 2, "minReplicas": 1, "maxReplicas": 9}, GPUS],
    },
    "everything around it": {
        "job": JOB,
        "image": {"repository": "registry/scorer", "digest": "sha256:" + "0f" * 32},
        "imagePullSecrets": [{"name": "registry"}],
        "initContainers": [{"name": "model", "image": "fetch"}],
        "sidecars": [{"name": "proxy", "image": "proxy"}],
        "envFrom": [{"secretRef": {"name": "more"}}],
        "head": {
            "affinity": {"nodeAffinity": {}},
            "tolerations": [{"operator": "Exists"}],
            "priorityClassName": "high",
            "topologySpreadConstraints": SPREAD,
            "podAnnotations": {"a": "b"},
            "podLabels": {"team": "orders"},
        },
        "status": {"enabled": True, "port": 9000},
        "metrics": {
            "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "prometheusRule": {
                "enabled": True,
                "labels": {"release": "prometheus"},
                "alertLabels": {"severity": "page"},
                "disabled": ["Slow"],
                "extraGroups": [{"name": "more", "rules": [{"alert": "Up", "expr": "up == 0"}]}],
            },
        },
        "podDisruptionBudget": {"enabled": True, "workers": {"minAvailable": 3}},
        "networkPolicy": {
            "enabled": True,
            "operatorNamespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kuberay"}},
            "metricsNamespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
            "extraIngress": [{"from": [{"podSelector": {}}]}],
            "egress": {
                "enabled": True,
                "kafkaTo": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
                "extra": [{"ports": [{"port": 443}]}],
            },
        },
        "serviceAccount": {"annotations": {"role": "reader"}, "automountToken": True},
    },
    "accounts of others": {
        "job": JOB,
        "serviceAccount": {"create": False, "name": "theirs"},
        "rbac": {"create": False},
        "autoscaling": {"enabled": True},
        "fullnameOverride": "orders",
    },
    "monitored by its Service": {
        "job": JOB,
        "status": {"enabled": True},
        "metrics": {
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "dashboard": {"enabled": True},
        },
    },
}
