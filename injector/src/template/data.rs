//! The data passed to templates.

use std::rc::Rc;

use gotemplate::{Origin, Str, Value};
use istio_iptables::config::PROXY_ID;
use serde_json::{Map, Value as Json};

use crate::annotations::keys;
use crate::config::Mesh;
use crate::pod::ids::Ids;
use crate::pod::workload::Workload;
use crate::schema::{OBJECT_META, POD_SPEC, mesh};

/// Everything that a template is rendered with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Data<'a> {
    /// The pod, without an earlier injection.
    pub(crate) pod: &'a Json,
    /// The workload of the pod.
    pub(crate) workload: &'a Workload,
    /// The mesh config.
    pub(crate) mesh: &'a Mesh,
    /// The mesh config with the pod's own proxy config.
    pub(crate) own_mesh: &'a Mesh,
    /// The mesh config as one object, with `defaultConfig`.
    pub(crate) mesh_json: &'a Map<String, Json>,
    /// The values.
    pub(crate) values: &'a Json,
    /// The revision.
    pub(crate) revision: &'a str,
    /// Whether the proxy is to be a native sidecar.
    pub(crate) native_sidecars: bool,
    /// The proxy's image.
    pub(crate) proxy_image: &'a str,
    /// The init container's image.
    pub(crate) init_image: &'a str,
    /// User and group of the proxy, where the namespace prescribes them.
    pub(crate) ids: Ids,
    /// Which rules the agent has to comply with, such as `fips-140-3`.
    pub(crate) compliance_policy: &'a str,
}

impl<'a> Data<'a> {
    /// Go's name of its type, as errors name it.
    pub(crate) const TYPE: &'static str = "inject.SidecarTemplateData";

    /// Whether the pod may have set what is in its proxy config.
    pub(super) fn overrides_config(&self) -> bool {
        crate::pod::list::annotation(self.pod, keys::PROXY_CONFIG).is_some()
    }

    /// The value that dot is.
    pub(crate) fn value(&self) -> Value<'a> {
        let part = |key: &str| self.pod.get(key).and_then(Json::as_object);
        let text = |text: &'a str| Value::Str(Str::borrowed(text));
        let of_user =
            |text: &'a str, key: &'static str| Value::user_text(text, Origin { kind: "workload", key });
        let number =
            |number: Option<i64>| Value::Ptr(Rc::new(Value::int64(number.unwrap_or(PROXY_ID.into()))));
        let config_of_user = self.overrides_config().then_some("annotation proxy.istio.io/config, field");
        let (type_meta, deployment_meta) = self.owner();
        Value::record(
            Self::TYPE,
            vec![
                ("TypeMeta", type_meta),
                ("DeploymentMeta", deployment_meta),
                ("ObjectMeta", Value::of_struct(&OBJECT_META, part("metadata"), None)),
                ("Spec", Value::of_struct(&POD_SPEC, part("spec"), Some("spec"))),
                (
                    "ProxyConfig",
                    Value::of_struct(&mesh::PROXY_CONFIG, Some(self.own_mesh.proxy()), config_of_user),
                ),
                ("MeshConfig", Value::of_struct(&mesh::MESH_CONFIG, Some(self.mesh_json), None)),
                ("Values", Value::any(self.values)),
                ("Revision", text(self.revision)),
                ("NativeSidecars", Value::Bool(self.native_sidecars)),
                ("ProxyImage", of_user(self.proxy_image, "image")),
                ("ProxyInitImage", of_user(self.init_image, "image")),
                ("ProxyUID", number(self.ids.uid)),
                ("ProxyGID", number(self.ids.gid)),
                ("InboundTrafficPolicyMode", Value::string(self.mesh.inbound_traffic_policy())),
                ("CompliancePolicy", text(self.compliance_policy)),
            ],
        )
    }

    /// `.TypeMeta` and `.DeploymentMeta`.
    fn owner(&self) -> (Value<'a>, Value<'a>) {
        let of_user =
            |text: &'a str, key: &'static str| Value::user_text(text, Origin { kind: "workload", key });
        let type_meta = Value::record(
            "v1.TypeMeta",
            vec![
                ("Kind", of_user(&self.workload.kind, "kind")),
                ("APIVersion", of_user(&self.workload.api_version, "apiVersion")),
            ],
        );
        let deployment_meta = Value::record(
            "types.NamespacedName",
            vec![
                ("Name", of_user(&self.workload.name, "name")),
                ("Namespace", of_user(&self.workload.namespace, "namespace")),
            ],
        );
        (type_meta, deployment_meta)
    }
}
