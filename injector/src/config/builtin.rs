//! The built-in config, values and mesh config.

/// Injector config: both templates begin with what they have in common.
pub const CONFIG: &str = concat!(
    include_str!("../../builtin/config.yaml"),
    "  sidecar: |\n",
    include_str!("../../builtin/common.yaml"),
    include_str!("../../builtin/sidecar.yaml"),
    "  gateway: |\n",
    include_str!("../../builtin/common.yaml"),
    include_str!("../../builtin/gateway.yaml"),
);
/// The names of its templates.
pub(crate) const TEMPLATES: [&str; 2] = ["gateway", "sidecar"];
/// The default image of `istio-init`: the one that `make image` and `make image-local` build from this
/// version.
pub const INIT_IMAGE: &str = concat!("localhost/istio-iptables:", env!("CARGO_PKG_VERSION"));
/// Values: every key that Istio's templates read, and [`INIT_IMAGE`].
pub const VALUES: &str = concat!(
    include_str!("../../builtin/values.yaml"),
    "    image: localhost/istio-iptables:",
    env!("CARGO_PKG_VERSION"),
    "\n"
);
/// Mesh config.
pub const MESH: &str = include_str!("../../builtin/mesh.yaml");
