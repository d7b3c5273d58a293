//! The config, values and mesh config that count when none is given.

/// Injector config.
pub const CONFIG: &str = include_str!("../../builtin/config.yaml");
/// Values: every key that Istio's templates read. The image of `istio-init` is the one that `make image` and
/// `make image-local` build from this version.
pub const VALUES: &str = concat!(
    include_str!("../../builtin/values.yaml"),
    "    image: localhost/istio-iptables:",
    env!("CARGO_PKG_VERSION"),
    "\n"
);
/// Mesh config.
pub const MESH: &str = include_str!("../../builtin/mesh.yaml");
