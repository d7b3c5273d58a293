//! The tables in the documentation are generated from the program's own.
//!
//! After a change of the options, regenerate the tables with `make gallery`.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "reads and writes pages, and fails by panicking"
)]

#[path = "docs/readable.rs"]
mod readable;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use istio_iptables::cli::{Key, OptionSpec};
use istio_iptables::exit::Exit;
use istio_iptables::finding::{Problem, Spec};

#[test]
fn exit_codes_are_up_to_date() {
    generated_table_is_up_to_date("docs/exit-codes.md", "exit codes", &exit_codes());
}

#[test]
fn problems_are_up_to_date() {
    let row = |problem: &Problem| {
        let Spec { id, title, fix } = problem.spec();
        let is_alone = ["{}", "`{}`"].contains(&fix);
        let subject = if is_alone { "the command that the report prints" } else { "NAME" };
        format!("| `{id}` | {title} | {} |\n", fix.replace("{}", subject))
    };
    let rows: String = Problem::ALL.iter().map(row).collect();
    let table = format!("| Problem | First line | Fix |\n|---|---|---|\n{rows}");
    generated_table_is_up_to_date("docs/explain.md", "problems", &table);
    let sorted = Problem::ALL.windows(2).all(|pair| pair[0] < pair[1]);
    assert!(sorted, "the table is in the order of the report");
    for problem in Problem::ALL {
        assert!(problem.spec().title.len() <= 80, "{}", problem.spec().id);
    }
}

#[test]
fn readme_is_one_screen_after_the_other_and_its_figures_are_measured() {
    let page = |name: &str| fs::read_to_string(format!("{}/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let (readme, measured) = (page("README.md"), page("docs/performance.md"));
    assert!(readme.lines().count() <= 120, "{} lines", readme.lines().count());
    let (_, rest) = readme.split_once("<!-- figures: begin -->").unwrap();
    let (figures, _) = rest.split_once("<!-- figures: end -->").unwrap();
    let bold = figures.split("**").skip(1).step_by(2);
    let figures: Vec<&str> = bold.filter(|words| words.starts_with(|c: char| c.is_ascii_digit())).collect();
    assert_eq!(figures.len(), MEASURED_AT.len(), "{figures:?}");
    for (figure, (row, column)) in figures.into_iter().zip(MEASURED_AT) {
        assert!(is_measured(&measured, row, column, figure), "docs/performance.md, {row}: {figure}?");
    }
    let row = "| a | 12.45 (1) | **2.4**, 3 |";
    assert!(
        is_measured(row, "a", 2, "2.4") && !is_measured(row, "a", 1, "2.4") && !is_measured(row, "a", 2, "2")
    );
}

/// Row and column of `docs/performance.md` for each figure of the README, in their order.
const MEASURED_AT: [(&str, usize); 10] = [
    ("`explain --live` about a packet: nft", 2),
    ("open connections that survive the first capture", 1),
    ("open connections that survive the first capture", 2),
    ("new connections during the five changes", 1),
    ("nft, first run", 1),
    ("nft, first run", 2),
    ("nft, re-run without a change", 1),
    ("nft, re-run without a change", 2),
    ("native nftables, excluded ports (`-o`)", 5),
    ("iptables-nft, excluded ports (`-o`)", 5),
];

/// Whether this cell begins with the figure; the row is there once.
fn is_measured(page: &str, row: &str, column: usize, figure: &str) -> bool {
    let start = format!("| {row} |");
    let mut rows = page.lines().filter(|line| line.starts_with(&start));
    let (found, other) = (rows.next().unwrap_or_default(), rows.next());
    let cell = found.split('|').nth(column + 1).unwrap_or_default().trim().trim_start_matches('*');
    let rest = cell.strip_prefix(figure).filter(|_| other.is_none());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '*']) || rest.starts_with(", "))
}

#[test]
fn commands_of_the_readme_are_known() {
    let root = env!("CARGO_MANIFEST_DIR");
    let readme = fs::read_to_string(format!("{root}/README.md")).unwrap();
    let makefile = fs::read_to_string(format!("{root}/Makefile")).unwrap();
    let targets = readme.split(['`', '\n']).filter_map(|code| {
        let command = code.trim_start_matches(['$', '#', ' ']).strip_prefix("make ")?;
        command.split(['#', '&']).next()
    });
    let targets: Vec<&str> = targets.flat_map(str::split_whitespace).collect();
    assert!(targets.len() >= 5, "{targets:?}");
    for target in targets {
        let is_here = |line: &str| {
            line.split_once(':').is_some_and(|(names, _)| names.split(' ').any(|name| name == target))
        };
        assert!(makefile.lines().any(is_here), "make {target}");
    }
    let asked: Vec<&str> = readme.lines().filter_map(|line| line.strip_prefix("# istio-iptables ")).collect();
    assert!(asked.len() >= 4, "{asked:?}");
    for line in asked {
        let words: Vec<&str> = line.split_whitespace().take_while(|word| *word != ">").collect();
        let program = env!("CARGO_BIN_EXE_istio-iptables");
        let help = std::process::Command::new(program).args([words[0], "--help"]).output().unwrap();
        assert!(help.status.success(), "{line}");
        let help = String::from_utf8(help.stdout).unwrap();
        for option in words.iter().filter(|word| word.starts_with('-')) {
            let is_known = help.split([' ', ',', '\n', '[', '=']).any(|word| word == *option);
            assert!(is_known, "{line}: {option}: {help}");
        }
    }
}

/// The picture is what the program prints about the pod in `docs/pod.json`, a bundle.
#[test]
fn picture_of_the_readme_is_up_to_date() {
    let root = env!("CARGO_MANIFEST_DIR");
    let question = "explain --bundle docs/pod.json --to 10.3.4.5:80 --color always";
    let program = std::process::Command::new(env!("CARGO_BIN_EXE_istio-iptables"))
        .args(question.split(' '))
        .current_dir(root)
        .output()
        .unwrap();
    let report = String::from_utf8(program.stdout).unwrap();
    let shown = report.split("\n\n").next().unwrap();
    let drawn = picture(&format!("# istio-iptables explain --live --pid $PID --to 10.3.4.5:80\n{shown}"));
    let path = format!("{root}/docs/explain.svg");
    if std::env::var_os("UPDATE_GALLERY").is_some() {
        fs::write(path, drawn).unwrap();
        return;
    }
    assert_eq!(
        fs::read_to_string(path).unwrap(),
        drawn,
        "docs/explain.svg is not current: run `make gallery`"
    );
}

/// The example of a page is about the same pod.
#[test]
fn example_page_is_up_to_date() {
    let root = env!("CARGO_MANIFEST_DIR");
    let program = std::process::Command::new(env!("CARGO_BIN_EXE_istio-iptables-report"))
        .arg("docs/pod.json")
        .current_dir(root)
        .output()
        .unwrap();
    let page = String::from_utf8(program.stdout).unwrap();
    assert!(page.len() < 60_000, "{} bytes", page.len());
    let path = format!("{root}/docs/pod.html");
    if std::env::var_os("UPDATE_GALLERY").is_some() {
        fs::write(path, page).unwrap();
        return;
    }
    assert!(fs::read_to_string(path).unwrap() == page, "docs/pod.html is not current: run `make gallery`");
    let picture = fs::metadata(format!("{root}/docs/pod.png")).unwrap().len();
    assert!(picture < 150_000, "docs/pod.png: {picture} bytes");
}

/// The picture is of the page as it is, by the checksum that `make picture` records.
#[test]
fn picture_of_the_example_page_is_up_to_date() {
    let compared = std::process::Command::new("sha256sum")
        .args(["--check", "docs/pod.png.sha256"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let result = String::from_utf8(compared.stdout).unwrap();
    assert_eq!(result, "docs/pod.html: OK\n", "docs/pod.png is not current: run `make picture`");
}

/// A terminal with this text, whose colours are sequences of ECMA-48.
fn picture(text: &str) -> String {
    const WIDTH: usize = 104;
    let text = istio_iptables::text::wrapped(text, WIDTH);
    let (line_height, left) = (19, 14);
    let height = text.lines().count() * line_height + 24;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 860 {height}\" font-family=\"ui-monospace,Menlo,Consolas,monospace\" \
         font-size=\"13\">\n<rect width=\"860\" height=\"{height}\" rx=\"8\" fill=\"#1e2228\"/>\n"
    );
    let mut colour = "#d8dee9";
    for (number, line) in text.lines().enumerate() {
        let y = 26 + number * line_height;
        write!(svg, "<text x=\"{left}\" y=\"{y}\" xml:space=\"preserve\">").unwrap();
        for (part, shown) in line.split('\x1b').enumerate() {
            let shown = match shown.split_once('m').filter(|_| part > 0) {
                Some((code, rest)) => {
                    colour = match code {
                        "[31" => "#ff7b72",
                        "[32" => "#7ee787",
                        "[33" => "#f2cc60",
                        "[1" => "#ffffff",
                        _ => "#d8dee9",
                    };
                    rest
                }
                None => shown,
            };
            if !shown.is_empty() {
                let shown = shown.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
                write!(svg, "<tspan fill=\"{colour}\">{shown}</tspan>").unwrap();
            }
        }
        svg.push_str("</text>\n");
    }
    svg + "</svg>\n"
}

#[test]
fn options_page_is_up_to_date() {
    generated_table_is_up_to_date("docs/options.md", "options", &options());
}

#[test]
fn options_page_has_a_row_for_each_ip_family() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/options.md")).unwrap();
    for word in Key::IpFamily.spec().words {
        assert!(page.contains(&format!("\n| `{word}` | ")), "{word}");
    }
}

#[test]
fn files_and_tests_that_pages_name_exist() {
    let files = files(Path::new(env!("CARGO_MANIFEST_DIR")));
    for page in ["ARCHITECTURE.md", "tests/README.md"] {
        let text = fs::read_to_string(format!("{}/{page}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let missing: Vec<String> = text.lines().flat_map(|line| missing_names(line, &files)).collect();
        assert!(missing.is_empty(), "{page} names what does not exist: {missing:?}");
    }
}

#[test]
fn names_that_do_not_exist_are_found() {
    let files = files(Path::new(env!("CARGO_MANIFEST_DIR")));
    let missing = |line: &str| missing_names(line, &files);
    let here =
        "`docs.rs` `names_that_do_not_exist_are_found`, `names_that_do_not_…`, `tests/netns/lab/`, `dist/`";
    assert_eq!(missing(here), Vec::<String>::new());
    assert_eq!(missing("`netns/docs.rs`, `no_folder/`"), ["netns/docs.rs", "no_folder/"]);
    let other = "`tests/docs.rs` `a_name_of_nothing`, `tests/imports.rs` `names_that_do_not_exist_are_found`";
    assert_eq!(missing(other), ["a_name_of_nothing", "names_that_do_not_exist_are_found"]);
}

#[test]
fn links_lead_to_pages_and_headings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_page = |file: &&PathBuf| file.extension().is_some_and(|extension| extension == "md");
    let pages: Vec<PathBuf> = files(root).into_iter().filter(|file| is_page(&file)).collect();
    let broken: Vec<String> = pages.iter().flat_map(|page| broken_links(page)).collect();
    assert!(pages.len() > 40, "{}", pages.len());
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn broken_links_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let (page, other) = (folder.path().join("page.md"), folder.path().join("other.md"));
    fs::write(&other, "# It's `one`: a (b)\n\n## Twice\n\n## Twice\n\n```\n# no heading\n```\n").unwrap();
    let right = "[a](other.md) [b](other.md#its-one-a-b) [c](other.md#twice-1) [d](#title) [e](https://x.example/y#z)";
    fs::write(&page, format!("# Title\n\n{right}\n\n```\n[in code](none.md)\n```\n")).unwrap();
    assert_eq!(broken_links(&page), Vec::<String>::new());
    let wrong = ["none.md", "other.md#no-heading", "#none", "other.md#twice-2"];
    for link in wrong {
        fs::write(&page, format!("# Title\n\n[a]({link})\n")).unwrap();
        assert_eq!(broken_links(&page), [format!("{}: {link}", page.display())]);
    }
}

#[test]
fn summary_lists_every_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let summary = fs::read_to_string(root.join("docs/SUMMARY.md")).unwrap();
    for entry in fs::read_dir(root.join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let count = summary.matches(&format!("]({name})")).count();
        let wanted = usize::from(name.ends_with(".md") && name != "SUMMARY.md");
        assert_eq!(count, wanted, "docs/SUMMARY.md: {name}");
    }
}

/// Links of a page to files or headings that do not exist.
fn broken_links(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap();
    let links =
        prose(&text).flat_map(|line| line.split("](").skip(1)).filter_map(|rest| rest.split_once(')'));
    let is_broken = |link: &&str| {
        let (path, heading) = link.split_once('#').unwrap_or((link, ""));
        let target = if path.is_empty() { page.to_owned() } else { page.with_file_name("").join(path) };
        let has_heading = || headings(&fs::read_to_string(&target).unwrap()).contains(&heading.to_owned());
        let is_url = path.contains(':');
        !is_url && (!target.exists() || !heading.is_empty() && !has_heading())
    };
    let broken = links.map(|(link, _)| link).filter(is_broken);
    broken.map(|link| format!("{}: {link}", page.display())).collect()
}

/// The anchors of a page's headings: of the same heading, the second has a number.
fn headings(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for line in prose(text).filter(|line| line.starts_with('#')) {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let earlier = anchors.iter().filter(|other| {
            let is_number = |end: &str| end.strip_prefix('-').is_some_and(|n| n.parse::<u8>().is_ok());
            other.strip_prefix(&anchor).is_some_and(|end| end.is_empty() || is_number(end))
        });
        let number = earlier.count();
        anchors.push(if number == 0 { anchor } else { format!("{anchor}-{number}") });
    }
    anchors
}

/// The lines of a page outside of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// What a line names in backticks and does not exist: folders (`x/`), sources (`x.rs`, `x.py`), by the end of
/// their path, and tests in the file or folder before them.
fn missing_names(line: &str, files: &[PathBuf]) -> Vec<String> {
    let mut missing = Vec::new();
    let mut named: Vec<&PathBuf> = Vec::new();
    for name in line.split('`').skip(1).step_by(2) {
        let is_path = name.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
        if is_path && [".rs", ".py", "/"].iter().any(|end| name.ends_with(end)) {
            let is_here = |file: &&PathBuf| {
                let file = format!("/{}", file.display());
                let name = format!("/{name}");
                if name.ends_with('/') { file.contains(&name) } else { file.ends_with(&name) }
            };
            named = files.iter().filter(is_here).collect();
            // Placeholders, and a folder that is not committed.
            let is_real = !name.contains(char::is_uppercase) && name != "dist/";
            missing.extend(Some(name.to_owned()).filter(|_| named.is_empty() && is_real));
        } else if !named.is_empty() && is_test(name) {
            let function = format!("fn {}", name.trim_end_matches('…'));
            let has_it =
                |file: &&PathBuf| fs::read_to_string(file).is_ok_and(|text| text.contains(&function));
            missing.extend(Some(name.to_owned()).filter(|_| !named.iter().any(has_it)));
        }
    }
    missing
}

/// Names of tests are short sentences.
fn is_test(name: &str) -> bool {
    name.matches('_').count() > 1
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_…".contains(c))
}

/// Every file below a folder, but those that builds make.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        match entry.file_type().unwrap().is_dir() {
            true if name == "target" || name == ".git" => {}
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}

/// Compares the text between the markers `name` with `table`, or rewrites it when `UPDATE_GALLERY` is set.
fn generated_table_is_up_to_date(page: &str, name: &str, table: &str) {
    let path = format!("{}/{page}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(&path).unwrap();
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let (head, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("{page} lacks {begin}"));
    let (_, tail) = rest.split_once(&end).unwrap_or_else(|| panic!("{page} lacks {end}"));
    let wanted = format!("{head}{begin}\n{table}\n{end}{tail}");
    if std::env::var_os("UPDATE_GALLERY").is_some() {
        fs::write(path, wanted).unwrap();
        return;
    }
    assert_eq!(text, wanted, "{page} does not match the code: run `make gallery`");
}

fn options() -> String {
    let mut text = String::from("| Option | Variable | Default | Meaning |\n|---|---|---|---|\n");
    let mut heading = None;
    for spec in Key::ALL.iter().map(|key| key.spec()) {
        if heading.replace(spec.heading) != Some(spec.heading) {
            writeln!(text, "| **{}** | | | |", spec.heading.title()).unwrap();
        }
        writeln!(text, "| {} | {} | {} | {} |", flag(spec), variables(spec), default(spec), spec.help)
            .unwrap();
    }
    text
}

fn flag(spec: &OptionSpec) -> String {
    if !spec.has_flag() {
        return String::new();
    }
    let short = spec.short.map(|short| format!(" `-{short}`")).unwrap_or_default();
    let alias = spec.alias.map(|alias| format!(" `--{alias}`")).unwrap_or_default();
    format!("`--{}`{short}{alias}", spec.name)
}

/// Only what cannot be derived from the flag's name.
fn variables(spec: &OptionSpec) -> String {
    let derived = spec.name.to_ascii_uppercase().replace('-', "_");
    let names = spec.variable_names();
    if names.is_empty() {
        return "none".to_owned();
    }
    let shown = names.iter().filter(|name| !spec.has_flag() || **name != derived);
    shown.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" ")
}

fn default(spec: &OptionSpec) -> String {
    if spec.default.is_empty() { String::new() } else { format!("`{}`", spec.default) }
}

fn exit_codes() -> String {
    let mut text = String::from("| Code | Meaning |\n|---|---|\n");
    for (exit, meaning) in Exit::ALL {
        writeln!(text, "| {} | {meaning} |", exit.code()).unwrap();
    }
    text
}
