//! The config, values and mesh config that count when none is given.

/// Injector config.
pub const CONFIG: &str = include_str!("../../builtin/config.yaml");
/// Values: every key that Istio's templates read.
pub const VALUES: &str = include_str!("../../builtin/values.yaml");
/// Mesh config.
pub const MESH: &str = include_str!("../../builtin/mesh.yaml");
