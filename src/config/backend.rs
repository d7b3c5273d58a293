//! The backend, from three options that overlap.

use crate::cli::Key;

use super::error::{ConfigError, Expected};
use super::reader::Reader;
use super::run::BackendChoice;

const NATIVE: &str = "native nftables is not available in this version; iptables-nft programs the same kernel subsystem \
                      (--backend iptables-nft, or auto)";

/// The values of the three options.
#[derive(Clone, Copy)]
struct BackendOptions {
    /// `--backend`; `None` for native nftables.
    backend: Option<BackendChoice>,
    /// `--force-iptables-binary`.
    forced: Option<BackendChoice>,
    /// `--native-nftables`.
    native: bool,
}

pub(super) fn choice(reader: &mut Reader<'_>) -> BackendChoice {
    let backend = reader.value(Key::Backend, |text| match text {
        "auto" => Ok(Some(BackendChoice::Auto)),
        "iptables" => Ok(Some(BackendChoice::Iptables)),
        "iptables-legacy" => Ok(Some(BackendChoice::IptablesLegacy)),
        "iptables-nft" => Ok(Some(BackendChoice::IptablesNft)),
        "nftables" => Ok(None),
        _ => Err(Expected::new("auto, iptables, iptables-nft or iptables-legacy")),
    });
    let forced = reader.optional(Key::ForceIptablesBinary, |text| match text {
        "legacy" => Ok(BackendChoice::IptablesLegacy),
        "nft" => Ok(BackendChoice::IptablesNft),
        _ => Err(Expected::new("legacy or nft")),
    });
    let options = BackendOptions {
        // One that does not parse is noted and contradicts nothing.
        backend: backend.unwrap_or(Some(BackendChoice::Auto)),
        forced,
        native: reader.boolean(Key::NativeNftables),
    };
    for (wanted, key) in [(options.backend.is_none(), Key::Backend), (options.native, Key::NativeNftables)] {
        if wanted {
            let origin = reader.origin(key);
            reader.errors.push(ConfigError::Unavailable { origin, reason: NATIVE });
        }
    }
    for (one, other) in contradictions(options) {
        reader.contradict(one, other, "they ask for different backends; keep one of them");
    }
    let open = matches!(options.backend, Some(BackendChoice::Auto | BackendChoice::Iptables));
    let forced = forced.filter(|_| open);
    forced.or(options.backend).unwrap_or(BackendChoice::Auto)
}

/// The pairs of options that ask for different things.
fn contradictions(options: BackendOptions) -> Vec<(Key, Key)> {
    let BackendOptions { backend, forced, native } = options;
    let variant = backend.filter(|backend| !matches!(backend, BackendChoice::Auto | BackendChoice::Iptables));
    let is_iptables = backend.is_some_and(|backend| backend != BackendChoice::Auto);
    let differs = forced.is_some_and(|forced| backend.is_none() || variant.is_some_and(|one| one != forced));
    [
        (native && forced.is_some(), Key::ForceIptablesBinary, Key::NativeNftables),
        (native && is_iptables, Key::Backend, Key::NativeNftables),
        (differs, Key::Backend, Key::ForceIptablesBinary),
    ]
    .into_iter()
    .filter_map(|(contradiction, one, other)| contradiction.then_some((one, other)))
    .collect()
}
