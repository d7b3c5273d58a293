"""A client of the Container Runtime Interface (runtime.v1), as far as these tests call it."""

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

# Messages, and their fields: number and type. `*` is repeated, `{}` a map of strings; the number is the protocol.
MESSAGES = {
    "Empty": {},
    "PodSandboxMetadata": {
        "name": (1, "string"),
        "uid": (2, "string"),
        "namespace": (3, "string"),
        "attempt": (4, "uint32"),
    },
    "PortMapping": {"protocol": (1, "int32"), "container_port": (2, "int32"), "host_port": (3, "int32")},
    "NamespaceOption": {"pid": (2, "int32")},
    "LinuxSandboxSecurityContext": {"namespace_options": (1, "NamespaceOption")},
    "LinuxPodSandboxConfig": {"cgroup_parent": (1, "string"), "security_context": (2, "LinuxSandboxSecurityContext")},
    "PodSandboxConfig": {
        "metadata": (1, "PodSandboxMetadata"),
        "hostname": (2, "string"),
        "log_directory": (3, "string"),
        "port_mappings": (5, "*PortMapping"),
        "labels": (6, "{}"),
        "annotations": (7, "{}"),
        "linux": (8, "LinuxPodSandboxConfig"),
    },
    "RunPodSandboxRequest": {"config": (1, "PodSandboxConfig")},
    "SandboxId": {"pod_sandbox_id": (1, "string")},  # requests to stop and remove, response of run
    "PodSandboxStatusRequest": {"pod_sandbox_id": (1, "string"), "verbose": (2, "bool")},
    "PodIP": {"ip": (1, "string")},
    "PodSandboxNetworkStatus": {"ip": (1, "string"), "additional_ips": (2, "*PodIP")},
    "PodSandboxStatus": {"id": (1, "string"), "state": (3, "int32"), "network": (5, "PodSandboxNetworkStatus")},
    "PodSandboxStatusResponse": {"status": (1, "PodSandboxStatus"), "info": (2, "{}")},
    "PodSandbox": {"id": (1, "string"), "metadata": (2, "PodSandboxMetadata"), "state": (3, "int32")},
    "ListPodSandboxResponse": {"items": (1, "*PodSandbox")},
    "StatusRequest": {"verbose": (1, "bool")},
    "RuntimeCondition": {"type": (1, "string"), "status": (2, "bool"), "reason": (3, "string"), "message": (4, "string")},
    "RuntimeStatus": {"conditions": (1, "*RuntimeCondition")},
    "StatusResponse": {"status": (1, "RuntimeStatus"), "info": (2, "{}")},
    "VersionResponse": {"runtime_name": (2, "string"), "runtime_version": (3, "string")},
    "Image": {"id": (1, "string")},
    "ListImagesResponse": {"images": (1, "*Image")},
}

# Methods: service, request, response.
METHODS = {
    "Version": ("RuntimeService", "Empty", "VersionResponse"),
    "Status": ("RuntimeService", "StatusRequest", "StatusResponse"),
    "RunPodSandbox": ("RuntimeService", "RunPodSandboxRequest", "SandboxId"),
    "StopPodSandbox": ("RuntimeService", "SandboxId", "Empty"),
    "RemovePodSandbox": ("RuntimeService", "SandboxId", "Empty"),
    "PodSandboxStatus": ("RuntimeService", "PodSandboxStatusRequest", "PodSandboxStatusResponse"),
    "ListPodSandbox": ("RuntimeService", "Empty", "ListPodSandboxResponse"),
    "ListImages": ("ImageService", "Empty", "ListImagesResponse"),
}


def _classes():
    """A class for each message of the table."""
    field_types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="cri.proto", package="cri", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            repeated = kind.startswith(("*", "{}"))
            row = message.field.add(name=field, number=number, label=3 if repeated else 1)
            kind = kind.lstrip("*")
            if kind == "{}":
                # In the protocol, a map is a repeated message of key and value.
                entry = message.nested_type.add(name=field.title().replace("_", "") + "Entry")
                entry.options.map_entry = True
                for key, at in (("key", 1), ("value", 2)):
                    entry.field.add(name=key, number=at, label=1, type=field_types.TYPE_STRING)
                row.type, row.type_name = field_types.TYPE_MESSAGE, f".cri.{name}.{entry.name}"
            elif kind in MESSAGES:
                row.type, row.type_name = field_types.TYPE_MESSAGE, f".cri.{kind}"
            else:
                row.type = getattr(field_types, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    of = getattr(message_factory, "GetMessageClass", None) or message_factory.MessageFactory(pool).GetPrototype
    return {name: of(pool.FindMessageTypeByName(f"cri.{name}")) for name in MESSAGES}


class CriError(Exception):
    """The runtime's response instead: its message, as kubelet puts it into an event."""


class Cri:
    """A connection; requests and responses are dictionaries."""

    def __init__(self, socket):
        self.channel = grpc.insecure_channel(f"unix:{socket}", options=[("grpc.max_receive_message_length", 1 << 26)])
        classes = _classes()
        self.methods = {}
        for name, (service, request, response) in METHODS.items():
            call = self.channel.unary_unary(
                f"/runtime.v1.{service}/{name}",
                request_serializer=classes[request].SerializeToString,
                response_deserializer=classes[response].FromString,
            )
            self.methods[name] = (call, classes[request])

    def call(self, method, timeout=240, **fields):
        call, request = self.methods[method]
        try:
            # The runtime may be starting.
            response = call(json_format.ParseDict(fields, request()), timeout=timeout, wait_for_ready=True)
        except grpc.RpcError as error:
            raise CriError(error.details() or str(error.code())) from None
        return json_format.MessageToDict(response, preserving_proto_field_name=True)

    def close(self):
        self.channel.close()
