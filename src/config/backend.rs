//! The backend, from three options that overlap.

use crate::cli::Key;

use super::error::Expected;
use super::reader::Reader;
use super::run::BackendChoice;

/// The values of the three options.
#[derive(Clone, Copy)]
struct BackendOptions {
    /// `--backend`.
    backend: BackendChoice,
    /// `--force-iptables-binary`.
    forced: Option<BackendChoice>,
    /// `--native-nftables`.
    native: bool,
}

pub(super) fn choice(reader: &mut Reader<'_>) -> BackendChoice {
    let backend = reader.value(Key::Backend, |text| match text {
        "auto" => Ok(BackendChoice::Auto),
        "iptables" => Ok(BackendChoice::Iptables),
        "iptables-legacy" => Ok(BackendChoice::IptablesLegacy),
        "iptables-nft" => Ok(BackendChoice::IptablesNft),
        "nftables" => Ok(BackendChoice::Nftables),
        _ => Err(Expected::new("auto, iptables, iptables-nft, iptables-legacy or nftables")),
    });
    let forced = reader.optional(Key::ForceIptablesBinary, |text| match text {
        "legacy" => Ok(BackendChoice::IptablesLegacy),
        "nft" => Ok(BackendChoice::IptablesNft),
        _ => Err(Expected::new("legacy or nft")),
    });
    let options = BackendOptions {
        // One that does not parse is noted and contradicts nothing.
        backend: backend.unwrap_or(BackendChoice::Auto),
        forced,
        native: reader.boolean(Key::NativeNftables),
    };
    for (one, other) in contradictions(options) {
        reader.conflict(one, other, "they ask for different backends; keep one of them");
    }
    let native = options.native.then_some(BackendChoice::Nftables);
    let is_open = matches!(options.backend, BackendChoice::Auto | BackendChoice::Iptables);
    forced.or(native).filter(|_| is_open).unwrap_or(options.backend)
}

/// The pairs of options that contradict each other.
fn contradictions(options: BackendOptions) -> Vec<(Key, Key)> {
    let BackendOptions { backend, forced, native } = options;
    let is_variant = matches!(backend, BackendChoice::IptablesNft | BackendChoice::IptablesLegacy);
    let is_native = backend == BackendChoice::Nftables;
    let differs = forced.is_some_and(|forced| is_native || (is_variant && backend != forced));
    let of_iptables = is_variant || backend == BackendChoice::Iptables;
    [
        (native && forced.is_some(), Key::ForceIptablesBinary, Key::NativeNftables),
        (native && of_iptables, Key::Backend, Key::NativeNftables),
        (differs, Key::Backend, Key::ForceIptablesBinary),
    ]
    .into_iter()
    .filter_map(|(contradiction, one, other)| contradiction.then_some((one, other)))
    .collect()
}
