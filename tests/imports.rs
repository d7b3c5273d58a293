//! Imports run one way: a module uses those that `lib.rs` lists before it, and no later one.
//!
//! The order is the order of the `mod` lines in each crate's `lib.rs`. Unit tests may use every module.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    reason = "reads sources, and fails by panicking"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn modules_of_the_init_crate_import_earlier_ones_only() {
    imports_run_one_way("src");
}

#[test]
fn modules_of_the_cni_plugin_import_earlier_ones_only() {
    imports_run_one_way("cni/src");
}

#[test]
fn modules_of_the_injector_import_earlier_ones_only() {
    imports_run_one_way("injector/src");
}

#[test]
fn import_of_a_later_module_is_found() {
    let order = ["model", "kernel", "plan"].map(str::to_owned);
    let source = "use crate::model::Family;\nuse crate::{\n    model::{Rule, plan},\n    plan::Step,\n};\n";
    assert_eq!(later_imports(&order, "kernel", source), ["plan"]);
    assert_eq!(later_imports(&order, "model", "fn f() -> crate::kernel::Host {}"), ["kernel"]);
    assert_eq!(later_imports(&order, "plan", source), [""; 0]);
    let in_test = "use crate::model::Family;\n#[cfg(test)]\nmod tests {\n    use crate::plan::Step;\n}\n";
    assert_eq!(later_imports(&order, "kernel", in_test), [""; 0]);
    assert_eq!(later_imports(&order, "kernel", "//! See [`crate::plan`].\n"), [""; 0]);
}

fn imports_run_one_way(folder: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let library = read(&root.join("lib.rs"));
    let order: Vec<String> = library
        .lines()
        .filter_map(|line| line.strip_prefix("pub ").unwrap_or(line).strip_prefix("mod ")?.strip_suffix(';'))
        .map(str::to_owned)
        .collect();
    assert_eq!(order.iter().collect::<BTreeSet<_>>(), modules(&root).iter().collect(), "{folder}/lib.rs");
    let mut wrong = Vec::new();
    for module in &order {
        for path in [root.join(format!("{module}.rs")), root.join(module)] {
            for file in sources(&path) {
                let later = later_imports(&order, module, &read(&file));
                wrong.extend(later.iter().map(|later| format!("{}: crate::{later}", file.display())));
            }
        }
    }
    assert!(wrong.is_empty(), "{folder}/lib.rs lists these modules later:\n{}", wrong.join("\n"));
}

/// The modules after `module` in `order` that `source` names by a path from the root of the crate.
fn later_imports(order: &[String], module: &str, source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code: Vec<&str> = code.lines().filter_map(|line| line.split("//").next()).collect();
    let used: BTreeSet<String> = code.join("\n").split("crate::").skip(1).flat_map(first_names).collect();
    let later = order.iter().skip_while(|name| *name != module).skip(1);
    later.filter(|name| used.contains(*name)).cloned().collect()
}

/// The first names of the paths after `crate::`, of which braces may hold several.
fn first_names(path: &str) -> Vec<String> {
    let name = |path: &str| -> String {
        path.trim_start().chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
    };
    let Some(group) = path.strip_prefix('{') else { return vec![name(path)] };
    let mut depth = 1;
    let mut names = vec![name(group)];
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => names.extend(group.get(at + 1..).map(name)),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

/// The modules that have a file or a folder of their own.
fn modules(root: &Path) -> BTreeSet<String> {
    let stem = |path: PathBuf| Some(path.file_stem()?.to_str()?.to_owned());
    entries(root)
        .into_iter()
        .filter_map(stem)
        .filter(|name| !["lib", "main"].contains(&name.as_str()))
        .collect()
}

/// The files of a module, without those that only its tests are made of.
fn sources(path: &Path) -> Vec<PathBuf> {
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    if name == "tests" || name == "testing" {
        Vec::new()
    } else if path.is_dir() {
        entries(path).iter().flat_map(|path| sources(path)).collect()
    } else if path.extension().is_some_and(|extension| extension == "rs") && path.exists() {
        vec![path.to_owned()]
    } else {
        Vec::new()
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.expect("a folder can be listed").path()).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
