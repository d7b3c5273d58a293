//! What injection is told: injector config, values, mesh config.

mod builtin;
pub mod duration;
mod error;
mod injector;
mod mesh;
pub mod message;
mod sources;

#[cfg(test)]
mod tests;

pub use builtin::{CONFIG as BUILTIN_CONFIG, MESH as BUILTIN_MESH, VALUES as BUILTIN_VALUES};
pub use error::ConfigError;
pub use injector::{Aliased, InjectorConfig, PodTemplate};
pub use mesh::Mesh;
pub use sources::{Holds, Settings, Source, Sources};
