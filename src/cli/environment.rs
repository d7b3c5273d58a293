//! Environment variables into [`RawOptions`].

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};

use super::error::UsageError;
use super::options::Key;
use super::packet::PacketKey;
use super::raw::{OptionValue, Origin, RawOptions};
use super::typed::is_misspelt;
use crate::ordered::Ordered as _;
use crate::text::one_line;

/// Options for which an empty value means something, or would be dangerous, so that it is looked at instead
/// of skipped.
const EMPTY_COUNTS: [Key; 3] = [Key::OutboundOwnerGroups, Key::OutboundIpv4LoopbackCidr, Key::EnvoyUser];

/// Adds the values of the environment; existing values take precedence.
pub(super) fn read(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    raw: &mut RawOptions,
    errors: &mut Vec<UsageError>,
) {
    let mut variables: HashMap<OsString, OsString> = environment.into_iter().collect();
    if variables.is_empty() {
        return;
    }
    let value = |name: &str| variables.get(OsStr::new(name)).map(OsString::as_os_str).unwrap_or_default();
    if !value("NO_COLOR").is_empty() || value("TERM") == "dumb" {
        raw.ask(PacketKey::Color, "never".to_owned());
    }
    // The variables that count are those of the machine in question.
    if !raw.packet(PacketKey::Bundle).is_empty() {
        return;
    }
    let command = raw.command;
    for &key in Key::ALL.iter().filter(|key| command.accepts(**key)) {
        for name in key.spec().variable_names() {
            let Some(value) = variables.remove(&OsString::from(&name)) else {
                continue;
            };
            let origin = Origin::Variable(name);
            match value.into_string() {
                Ok(text) if text.is_empty() && !EMPTY_COUNTS.contains(&key) => {}
                Ok(text) => raw.set_if_stronger(key, OptionValue { text, origin }),
                Err(value) => {
                    errors.push(UsageError::NotUtf8 { origin, shown: value.to_string_lossy().into_owned() })
                }
            }
        }
    }
}

/// Variables that begin with `ISTIO_` and have no effect, each with the one that was probably meant.
pub fn misspelt_variables(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Vec<(String, String)> {
    let known: Vec<String> = Key::ALL.iter().flat_map(|key| key.spec().variable_names()).collect();
    let names = environment.into_iter().filter_map(|(name, _)| name.into_string().ok());
    let unknown = names.filter(|name| name.starts_with("ISTIO_") && !known.contains(name));
    let pair = |name: String| {
        let meant = known.iter().find(|known| is_misspelt(&name, known))?.clone();
        Some((name, meant))
    };
    unknown.filter_map(pair).collect()
}

/// The variables that are read, as far as they are set, as `NAME=value`: for the log.
pub fn known_variables(environment: impl IntoIterator<Item = (OsString, OsString)>) -> Vec<String> {
    let set = environment
        .into_iter()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, _)| Key::ALL.iter().any(|key| key.spec().variable_names().contains(name)))
        .map(|(name, value)| format!("{name}={}", one_line(&value.to_string_lossy())));
    set.into_set().into_iter().collect()
}
