//! Finds the tools of each variant.

use std::path::Path;

use super::process::{Command, Host};
use crate::model::{Family, Tools, Variant};

/// The tools of a variant for a family, both of which must be there.
pub fn tools(host: &impl Host, variant: Variant, family: Family) -> Option<Tools> {
    let base = base_name(family);
    let named = |action: &str| host.find(&format!("{base}-{}-{action}", variant.word()));
    let plain = |action: &str| {
        let path = host.find(&format!("{base}-{action}"))?;
        (variant_of(host, &path) == Some(variant)).then_some(path)
    };
    let restore = named("restore").or_else(|| plain("restore"))?;
    let save = named("save").or_else(|| plain("save"))?;
    Some(Tools { restore, save })
}

/// The variant of a tool whose name does not contain it: by its link target, and otherwise by
/// its version line, which touches no table.
fn variant_of(host: &impl Host, path: &Path) -> Option<Variant> {
    let target = host.resolve(path);
    let name = target.file_name()?.to_string_lossy();
    if name.contains("legacy") {
        return Some(Variant::Legacy);
    }
    if name.contains("nft") {
        return Some(Variant::Nft);
    }
    let mut command = Command::new(path.to_owned());
    command.args.push("--version".to_owned());
    let output = host.run(command).ok()?;
    // Before 1.8 only legacy existed, and its version line does not name it.
    Some(if output.stdout.contains("nf_tables") { Variant::Nft } else { Variant::Legacy })
}

/// The prefix of a family's tool names.
#[must_use]
pub const fn base_name(family: Family) -> &'static str {
    match family {
        Family::V4 => "iptables",
        Family::V6 => "ip6tables",
    }
}
