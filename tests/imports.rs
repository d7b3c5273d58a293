//! Imports run one way: a module uses those that `lib.rs` lists before it, and no later one. Inside a module
//! no two files import each other, not over others either.
//!
//! The order is the order of the `mod` lines in each crate's `lib.rs`. Unit tests may use every module. The
//! table of modules in ARCHITECTURE.md names each of them once, and is right about what each does not import.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "reads sources, and fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
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
fn no_files_import_each_other() {
    let crates = [
        "src",
        "cni/src",
        "injector/src",
        "install-cni/src",
        "crates/apiclient/src",
        "crates/cli-docs/src",
        "crates/goduration/src",
        "crates/gotemplate/src",
        "crates/netlab/src",
        "crates/nfnetlink/src",
    ];
    for folder in crates {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let files = sources(&root);
        let files = files.iter().map(|file| (module_path(&root, file), code(&read(file)))).collect();
        let circles = circles(&files);
        assert!(circles.is_empty(), "{folder}: these modules import each other: {circles:?}");
    }
}

#[test]
fn files_that_import_each_other_are_found() {
    let files = |texts: &[(&str, &str)]| {
        let path = |name: &str| name.split("::").map(str::to_owned).collect();
        texts.iter().map(|(name, text)| (path(name), (*text).to_owned())).collect()
    };
    let modules = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let circle = [
        ("a", "mod b; mod c;"),
        ("a::b", "use super::c::X;"),
        ("a::c", "use super::{Y, d::{self, Z}};"),
        ("a::d", "fn f() -> crate::a::b::X {}"),
        ("a::e", "use super::b;"),
    ];
    assert_eq!(circles(&files(&circle)), [modules("b c d")]);
    let through_folders =
        [("a::b::c", "use super::super::d;"), ("a::d", "use super::b::c::X;"), ("e", "use crate::a;")];
    assert_eq!(circles(&files(&through_folders)), [modules("b d")]);
    let one_way = [("a", "use b::X;"), ("a::b", "use super::{Item, c::X};"), ("a::c", "use super::Item;")];
    assert_eq!(circles(&files(&one_way)), [[""; 0]; 0]);
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

#[test]
fn the_table_of_modules_is_complete_and_right_about_imports() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let order = order(&root.join("src"));
    let table = claims(&read(&root.join("ARCHITECTURE.md")));
    let mut named: Vec<&String> = table.iter().flat_map(|(modules, _)| modules).collect();
    named.sort();
    let mut all: Vec<&String> = order.iter().collect();
    all.sort();
    assert_eq!(named, all, "the modules in the table of ARCHITECTURE.md, and those of src/lib.rs");
    let broken: Vec<String> = table
        .iter()
        .flat_map(|(modules, claim)| modules.iter().map(move |module| (module, claim)))
        .flat_map(|(module, claim)| {
            let imported = imported_by(&root.join("src"), module);
            let known = |name: &String| order.contains(name).then_some(name).cloned();
            let imported: BTreeSet<String> = imported.iter().filter_map(known).collect();
            broken(claim, module, &imported).into_iter().map(move |name| format!("{module} imports {name}"))
        })
        .collect();
    assert_eq!(broken, [""; 0], "the table of ARCHITECTURE.md denies it");
}

#[test]
fn wrong_claims_of_the_table_are_found() {
    let text = "x\n| Where | Owns | Imports none of |\n|---|---|---|\n| `src/a/`, `src/b.rs` | `c` | `d`, `e` |\n\
                | `src/k/` | a \\| b | all but `a` |\n| `src/m/` | m | any |\n\n| `src/z/` | z | any |\n";
    let table = claims(text);
    let names = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let modules: Vec<_> = table.iter().map(|(modules, _)| modules.clone()).collect();
    assert_eq!(modules, [names("a b"), names("k"), names("m")]);
    let imported: BTreeSet<String> = names("a d k").into_iter().collect();
    let found: Vec<_> = table.iter().map(|(_, claim)| broken(claim, "k", &imported)).collect();
    assert_eq!(found, [names("d"), names("d"), names("a d")]);
}

/// What a row of the table says about a module's imports.
enum Claim {
    NoneOf(Vec<String>),
    OnlyOf(Vec<String>),
}

/// The modules of each row of the table in ARCHITECTURE.md, with what the last column says.
fn claims(text: &str) -> Vec<(Vec<String>, Claim)> {
    let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let module = |path: &String| {
        let name = path.strip_prefix("src/").unwrap_or_else(|| panic!("{path}: not in src/"));
        name.strip_suffix(".rs").or(name.strip_suffix('/')).unwrap_or(name).to_owned()
    };
    text.lines()
        .skip_while(|line| *line != "| Where | Owns | Imports none of |")
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells = line.trim_matches(['|', ' ']);
            let first = cells.split(" | ").next().expect("a first cell");
            let last = cells.rsplit(" | ").next().expect("a last cell");
            let claim = match last {
                "any" => Claim::OnlyOf(Vec::new()),
                _ if last.starts_with("all but ") => Claim::OnlyOf(names(last)),
                _ => Claim::NoneOf(names(last)),
            };
            (names(first).iter().map(module).collect(), claim)
        })
        .collect()
}

/// The imports that a row denies.
fn broken(claim: &Claim, module: &str, imported: &BTreeSet<String>) -> Vec<String> {
    let is_denied = |name: &&String| match claim {
        Claim::NoneOf(names) => names.contains(name),
        Claim::OnlyOf(names) => *name != module && !names.contains(name),
    };
    imported.iter().filter(is_denied).cloned().collect()
}

/// The first names of all paths from the root of the crate in a module.
fn imported_by(root: &Path, module: &str) -> BTreeSet<String> {
    let files = [root.join(format!("{module}.rs")), root.join(module)];
    let texts = files.iter().flat_map(|path| sources(path)).map(|file| code(&read(&file)));
    texts.flat_map(|text| text.split("crate::").skip(1).flat_map(first_names).collect::<Vec<_>>()).collect()
}

/// The modules of a crate, in the order of its `lib.rs`.
fn order(root: &Path) -> Vec<String> {
    read(&root.join("lib.rs"))
        .lines()
        .filter_map(|line| line.strip_prefix("pub ").unwrap_or(line).strip_prefix("mod ")?.strip_suffix(';'))
        .map(str::to_owned)
        .collect()
}

fn imports_run_one_way(folder: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let order = order(&root);
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
    let used: BTreeSet<String> = code(source).split("crate::").skip(1).flat_map(first_names).collect();
    let later = order.iter().skip_while(|name| *name != module).skip(1);
    later.filter(|name| used.contains(*name)).cloned().collect()
}

/// A source without comments and unit tests.
fn code(source: &str) -> String {
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().filter_map(|line| line.split("//").next()).collect::<Vec<_>>().join("\n")
}

/// The path of the module in a file.
fn module_path(root: &Path, file: &Path) -> Vec<String> {
    let path = file.strip_prefix(root).expect("a file below the root").with_extension("");
    let names = path.iter().map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| !["lib", "main", "mod"].contains(&name.as_str())).collect()
}

/// The modules of each folder that import each other, directly or over others.
fn circles(files: &BTreeMap<Vec<String>, String>) -> Vec<Vec<String>> {
    let mut folders: BTreeMap<&[String], BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (module, source) in files {
        for import in imports(module, source) {
            let common = module.iter().zip(&import).take_while(|(one, other)| one == other).count();
            let (Some(name), Some(imported)) = (module.get(common), import.get(common)) else { continue };
            let is_module = |known: &Vec<String>| known.starts_with(&import[..=common]);
            if files.keys().any(is_module) {
                let folder = folders.entry(&module[..common]).or_default();
                folder.entry(name.clone()).or_default().insert(imported.clone());
            }
        }
    }
    let mut circles = Vec::new();
    for mut imports in folders.into_values() {
        // What imports nothing that is left is in no circle, nor is what nothing that is left imports.
        loop {
            let importing: BTreeSet<String> = imports.keys().cloned().collect();
            let imported: BTreeSet<String> = imports.values().flatten().cloned().collect();
            imports.values_mut().for_each(|names| names.retain(|name| importing.contains(name)));
            imports.retain(|name, names| !names.is_empty() && imported.contains(name));
            if imports.len() == importing.len() {
                break;
            }
        }
        circles.extend((!imports.is_empty()).then(|| imports.into_keys().collect()));
    }
    circles
}

/// The paths from the root of the crate of what a module imports.
fn imports(module: &[String], source: &str) -> Vec<Vec<String>> {
    let mut imports = Vec::new();
    let mut rest = source;
    while let Some(at) = ["crate::", "super::"].iter().filter_map(|word| rest.find(word)).min() {
        let (before, path) = rest.split_at(at);
        rest = &path["crate::".len()..];
        if before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':') {
            continue;
        }
        let mut base = if path.starts_with("super::") { module.to_vec() } else { Vec::new() };
        let mut tail = path.strip_prefix("crate::").unwrap_or(path);
        while let Some(parent) = tail.strip_prefix("super::") {
            base.pop();
            tail = parent;
        }
        while let Some((name, inner)) = tail.split_once("::").filter(|(name, _)| is_name(name)) {
            base.push(name.to_owned());
            tail = inner;
        }
        imports.extend(first_names(tail).into_iter().map(|name| [base.as_slice(), &[name]].concat()));
    }
    imports
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
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

/// The modules that have a file or a folder of their own; in `bin` are programs.
fn modules(root: &Path) -> BTreeSet<String> {
    let stem = |path: PathBuf| Some(path.file_stem()?.to_str()?.to_owned());
    entries(root)
        .into_iter()
        .filter_map(stem)
        .filter(|name| !["bin", "lib", "main"].contains(&name.as_str()))
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
