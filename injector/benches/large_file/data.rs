//! The file: Deployments as charts render them, each followed by its ConfigMap.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

/// As many documents as a large repository of manifests has.
pub(crate) const DOCUMENTS: usize = 5000;
const VARIABLES: usize = 40;
const LINES: usize = 105;
/// Earlier builds refuse a larger file.
const PART_BYTES: usize = 5 << 20;

/// Documents in one file, and the same ones in several.
pub(crate) struct Data {
    pub(crate) one: PathBuf,
    pub(crate) parts: Vec<PathBuf>,
    pub(crate) bytes: usize,
}

impl Data {
    /// Writes the files, document by document: a process starts with the peak memory of the one that starts
    /// it.
    pub(crate) fn write(folder: &Path) -> std::io::Result<Self> {
        let mut data = Self { one: folder.join("large.yaml"), parts: Vec::new(), bytes: 0 };
        let mut one = BufWriter::new(File::create(&data.one)?);
        let mut part: Option<BufWriter<File>> = None;
        let mut room = 0_usize;
        for number in 0..DOCUMENTS / 2 {
            let pair = deployment(number) + &config_map(number);
            if pair.len() > room || part.is_none() {
                if let Some(full) = part.take() {
                    full.into_inner()?;
                }
                let path = folder.join(format!("part-{}.yaml", data.parts.len() + 1));
                part = Some(BufWriter::new(File::create(&path)?));
                data.parts.push(path);
                room = PART_BYTES;
            }
            if let Some(part) = &mut part {
                part.write_all(pair.as_bytes())?;
            }
            one.write_all(pair.as_bytes())?;
            room = room.saturating_sub(pair.len());
            data.bytes += pair.len();
        }
        if let Some(last) = part {
            last.into_inner()?;
        }
        one.into_inner()?;
        Ok(data)
    }
}

/// The beginning of a Deployment, up to the variables of its container.
const DEPLOYMENT: &str = include_str!("deployment.yaml");

fn deployment(number: usize) -> String {
    let mut text =
        DEPLOYMENT.replace("{number}", &number.to_string()).replace("{checksum}", &format!("{number:064x}"));
    for variable in 0..VARIABLES {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "        - name: SETTING_{variable}\n          value: \"value {variable} of app {number}\""
        );
    }
    let _ = writeln!(
        text,
        "      volumes:\n      - name: config\n        configMap:\n          name: app-{number}\n      nodeSelector:\n        kubernetes.io/os: linux"
    );
    text
}

fn config_map(number: usize) -> String {
    let mut text = format!(
        r#"---
# Source: shop/templates/config-{number}.yaml
apiVersion: v1
kind: ConfigMap
metadata:
  name: app-{number}
  namespace: shop
data:
  LOG_LEVEL: info
  application.properties: |
"#
    );
    for line in 0..LINES {
        let _ =
            writeln!(text, "    shop.module{line}.setting.timeout = {number} # seconds, see section {line}");
    }
    text
}
