//! Configuration: injector config, values, mesh config.

mod builtin;
mod check;
mod error;
mod injector;
mod mesh;
pub(crate) mod message;
mod proxy_configs;
mod source;
mod sources;
mod values;

#[cfg(test)]
mod tests;

pub(crate) use builtin::TEMPLATES as BUILTIN_TEMPLATES;
pub use builtin::{
    CONFIG as BUILTIN_CONFIG, INIT_IMAGE as BUILTIN_INIT_IMAGE, MESH as BUILTIN_MESH,
    VALUES as BUILTIN_VALUES,
};
pub use error::{ConfigError, Problem};
pub use injector::{InjectorConfig, PodTemplate};
pub use mesh::Mesh;
pub(crate) use proxy_configs::Layers;
pub use proxy_configs::{ProxyConfig, ProxyConfigs};
pub use source::Source;
pub(crate) use sources::ConfigFiles;
pub use sources::{Settings, SourceKind, Sources};
pub use values::{InvalidSet, SetValues, ValuesFrom};
